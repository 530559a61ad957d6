//! What a process of the daemon gives up once it has been set up: capabilities, files, system calls.
//!
//! The worker reads packets that anybody may send it. Whoever takes it over by one of them shall find a process that can
//! run no program, reach no file but the daemon's own, and enter no other namespace. What remains is CAP_NET_ADMIN and
//! CAP_NET_RAW, without which nothing can be diverted.
//!
//! All three means work for the calling thread and those that it starts later, so the order of a start is: the interceptor
//! with its thread, this in both threads, then all others. A means that the kernel lacks is told of in the log and by
//! `sctpify status`, and the daemon runs without it. Begin with [`Confinement::of_worker`].

mod capabilities;
mod files;
mod system_calls;

use control::{Check, DaemonArgs, Level, Measure};
use rules::Settings;
use rustix::thread::CapabilitySet;

use crate::confinement::system_calls::Filters;

/// What is to be given up.
#[derive(Clone)]
pub(crate) struct Confinement {
    /// Those kept, if the others are to go.
    capabilities: Option<CapabilitySet>,
    files: Option<files::Reach>,
    system_calls: Option<Result<Filters, String>>,
}

impl Confinement {
    /// For the process that does the work.
    pub(crate) fn of_worker(settings: &Settings, args: &DaemonArgs) -> Confinement {
        let asks_names = ["redis://", "rediss://"].iter().any(|tcp| settings.learned_store.starts_with(tcp));
        Confinement {
            capabilities: settings
                .confine_capabilities
                .then_some(CapabilitySet::NET_ADMIN | CapabilitySet::NET_RAW),
            files: settings
                .confine_files
                .then(|| files::Reach::of_worker(args, asks_names, &settings.peer_keys)),
            system_calls: settings.confine_system_calls.then(|| Filters::of_worker(asks_names)),
        }
    }

    /// For the process that watches, once the worker has been started.
    pub(crate) fn of_supervisor(settings: &Settings) -> Confinement {
        Confinement {
            capabilities: settings.confine_capabilities.then_some(CapabilitySet::NET_ADMIN),
            files: settings.confine_files.then(files::Reach::of_supervisor),
            system_calls: settings.confine_system_calls.then(Filters::of_supervisor),
        }
    }

    /// Puts it in force for the calling thread and those it starts from now on. What cannot be is in the result.
    pub(crate) fn apply(&self) -> control::Confinement {
        // Files first, while they can all be opened; filters last, for the others need calls that they refuse.
        let files = measure(self.files.as_ref(), files::Reach::apply);
        let capabilities = measure(self.capabilities.as_ref(), |kept| capabilities::keep(*kept));
        let system_calls = measure(self.system_calls.as_ref(), |filters| {
            filters.as_ref().map_err(Clone::clone).and_then(Filters::apply)
        });
        control::Confinement { capabilities, system_calls, files }
    }
}

fn measure<T>(wanted: Option<&T>, apply: impl FnOnce(&T) -> Result<String, String>) -> Measure {
    match wanted.map(apply) {
        None => Measure::Off,
        Some(Ok(left)) => Measure::InForce { left },
        Some(Err(why)) => Measure::Unavailable { why },
    }
}

/// Says in the log what came of it.
pub(crate) fn log(who: &str, confinement: &control::Confinement) {
    for (setting, measure) in confinement.measures() {
        match measure {
            Measure::InForce { left } => tracing::debug!(who, setting, left, "confined"),
            Measure::Off => tracing::warn!(who, setting, "not confined: a setting says so"),
            Measure::Unavailable { why } => tracing::warn!(who, setting, why, "not confined"),
        }
    }
}

/// What `sctpify doctor` says of it: one check for each means.
pub(crate) fn checks(confinement: &control::Confinement) -> Vec<Check> {
    let check = |(setting, measure): (&str, &Measure)| match measure {
        Measure::InForce { left } => Check::ok(setting, left),
        Measure::Off => {
            let remedy = format!("sctpify set {setting}=1, then start the daemon anew");
            Check::bad(setting, Level::Warning, measure.to_string(), remedy)
        }
        Measure::Unavailable { .. } => {
            let remedy = "a kernel with CONFIG_SECCOMP_FILTER and Landlock confines it";
            Check::bad(setting, Level::Warning, measure.to_string(), remedy)
        }
    };
    confinement.measures().map(check).into()
}
