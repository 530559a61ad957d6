//! Confines a process of the daemon after its setup: changes its user id, and restricts its capabilities, files and system calls.
//!
//! The worker reads packets from anybody, so an intruder may take it over. The worker therefore is not root, runs no program and enters no
//! other namespace. It opens no file outside /proc/self and no UNIX socket, unless the settings or a missing supervisor require it. It
//! keeps only CAP_NET_ADMIN and CAP_NET_RAW, which diversion needs. It can still send the few requests that the supervisor accepts
//! ([`crate::archive`]).
//!
//! All measures apply to the calling thread and to threads that it starts later. Startup therefore proceeds in this order:
//!
//! 1. The interceptor starts with its thread, and all steps that need root are done.
//! 2. The main thread and the interceptor's thread assume the [`Identity`].
//! 3. The carriers are opened, because a socket belongs to the user that opens it.
//! 4. Both threads apply the remaining measures.
//! 5. All other threads start.
//!
//! If the kernel does not support a measure, the daemon runs without it. The log and `sctpify status` then name the measure. Begin with
//! [`Confinement::of_worker`].

mod capabilities;
mod files;
mod identity;
mod system_calls;

use control::{Check, DaemonArgs, Level, Measure};
use rules::Settings;
use rustix::thread::CapabilitySet;

pub(crate) use crate::confinement::identity::Identity;
use crate::confinement::system_calls::{Filters, Work};

/// Privileges that a process gives up.
#[derive(Clone)]
pub(crate) struct Confinement {
    /// The capabilities to keep; `None` keeps all.
    capabilities: Option<CapabilitySet>,
    files: Option<files::Reach>,
    system_calls: Option<Result<Filters, String>>,
}

impl Confinement {
    /// Returns the confinement of the worker. Without a supervisor, the worker may also write the daemon's files.
    pub(crate) fn of_worker(settings: &Settings, args: &DaemonArgs, has_supervisor: bool) -> Confinement {
        let store = &settings.learned_store;
        let work = Work {
            asks_names: ["redis://", "rediss://"].iter().any(|tcp| store.starts_with(tcp)),
            connects_unix: is_unix(store),
            writes_files: !has_supervisor,
        };
        let reach = || {
            let mut reach = files::Reach::of_worker(work.asks_names);
            if work.writes_files {
                reach.add_own_files(args, &settings.peer_keys);
            }
            reach
        };
        Confinement {
            capabilities: settings
                .confine_capabilities
                .then_some(CapabilitySet::NET_ADMIN | CapabilitySet::NET_RAW),
            files: settings.confine_files.then(reach),
            system_calls: settings.confine_system_calls.then(|| Filters::of_worker(work)),
        }
    }

    /// Returns the confinement of the supervisor, after the worker has been started. The supervisor keeps CAP_KILL, because the worker
    /// belongs to another user. It keeps CAP_CHOWN to preserve the owners of the files that it replaces.
    pub(crate) fn of_supervisor(settings: &Settings, args: &DaemonArgs, worker: u32) -> Confinement {
        let kept = CapabilitySet::NET_ADMIN | CapabilitySet::KILL | CapabilitySet::CHOWN;
        Confinement {
            capabilities: settings.confine_capabilities.then_some(kept),
            files: settings.confine_files.then(|| files::Reach::of_supervisor(args, &settings.peer_keys)),
            system_calls: settings.confine_system_calls.then(|| Filters::of_supervisor(worker)),
        }
    }

    /// Applies the confinement to the calling thread and to threads started from now on. The result names the measures that are
    /// unavailable.
    pub(crate) fn apply(&self) -> control::Confinement {
        // The file rules come first, because later measures could prevent the rules' directories from being opened. The system-call filters
        // come last, because they refuse calls that the other measures need.
        let files = measure(self.files.as_ref(), files::Reach::apply);
        let capabilities = measure(self.capabilities.as_ref(), |kept| capabilities::keep(*kept));
        let system_calls = measure(self.system_calls.as_ref(), |filters| {
            filters.as_ref().map_err(Clone::clone).and_then(Filters::apply)
        });
        control::Confinement { user: Measure::default(), capabilities, system_calls, files }
    }
}

/// Reports whether a store is reached through a UNIX socket.
fn is_unix(store: &str) -> bool {
    store.starts_with("redis+unix:")
}

fn measure<T>(wanted: Option<&T>, apply: impl FnOnce(&T) -> Result<String, String>) -> Measure {
    match wanted.map(apply) {
        None => Measure::Off,
        Some(Ok(left)) => Measure::InForce { left },
        Some(Err(why)) => Measure::Unavailable { why },
    }
}

/// Logs the outcome of each measure except the change of user.
pub(crate) fn log(who: &str, confinement: &control::Confinement) {
    for (setting, measure) in confinement.measures() {
        // `log_user` logs the user id when the thread assumes it.
        if setting != identity::SETTING {
            log_measure(who, setting, measure);
        }
    }
}

/// Logs the worker's user.
pub(crate) fn log_user(measure: &Measure) {
    log_measure("worker", identity::SETTING, measure);
}

fn log_measure(who: &str, setting: &str, measure: &Measure) {
    match measure {
        Measure::InForce { left } => tracing::debug!(who, setting, left, "confined"),
        Measure::Off => tracing::warn!(who, setting, "not confined (setting)"),
        Measure::Unavailable { why } => tracing::warn!(who, setting, why, "not confined"),
    }
}

/// Returns one check of `sctpify doctor` for each measure.
pub(crate) fn checks(confinement: &control::Confinement) -> Vec<Check> {
    let check = |(setting, measure): (&str, &Measure)| match measure {
        Measure::InForce { left } => Check::ok(setting, left),
        Measure::Off => {
            let value = if setting == identity::SETTING { "" } else { "1" };
            let remedy = format!("sctpify set {setting}={value}, then restart the daemon");
            Check::bad(setting, Level::Warning, measure.to_string(), remedy)
        }
        Measure::Unavailable { .. } if setting == identity::SETTING => {
            let remedy = "start it with its supervisor, and with CAP_SETUID and CAP_SETGID";
            Check::bad(setting, Level::Warning, measure.to_string(), remedy)
        }
        Measure::Unavailable { .. } => {
            let remedy = "a kernel with CONFIG_SECCOMP_FILTER and Landlock confines it";
            Check::bad(setting, Level::Warning, measure.to_string(), remedy)
        }
    };
    confinement.measures().map(check).into()
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::io::ErrorKind;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::path::Path;
    use std::process::Command;

    use clap::Parser;

    use super::*;

    /// Environment variable that names the test directory for the confined process.
    const DIRECTORY: &str = "SCTPIFYD_TEST_DIRECTORY";

    /// Tries what an intruder in the worker would try.
    fn try_everything(dir: &Path) {
        let mut args = DaemonArgs::parse_from(["sctpifyd"]);
        (args.config, args.state_dir) = (dir.join("sctpify.toml"), dir.join("state"));
        // With a UNIX socket as its store, the worker may open UNIX sockets. Only the worker's user id prevents the connection to root's
        // socket.
        let learned_store = format!("redis+unix://{}/root.sock", dir.display());
        let settings = Settings { learned_store, ..Settings::default() };
        let identity = Identity::of_worker(&settings, &args, true).expect("a user");
        let (socket, secret, open) = (dir.join("root.sock"), dir.join("secret"), dir.join("open"));
        UnixStream::connect(&socket).expect("root may connect");
        fs::read(&secret).expect("root may read");
        let user = identity.assume();
        assert!(matches!(user, Measure::InForce { .. }), "{user}");
        let denied = |what: std::io::Error| assert_eq!(what.kind(), ErrorKind::PermissionDenied, "{what}");
        let confined = Confinement::of_worker(&settings, &args, true).apply();
        let [_, means @ ..] = confined.measures();
        assert!(means.iter().all(|(_, means)| matches!(means, Measure::InForce { .. })), "{confined}");
        denied(UnixStream::connect(&socket).expect_err("root's alone"));
        denied(fs::read(&secret).expect_err("root's alone"));
        denied(fs::read(&open).expect_err("not its own, though everybody may read it"));
        denied(fs::read(&args.config).expect_err("the supervisor reads it"));
        denied(fs::OpenOptions::new().write(true).open(&args.config).expect_err("the supervisor writes it"));
        denied(fs::File::create(args.state_dir.join("rules")).expect_err("the supervisor writes it"));
        denied(fs::write("/proc/sys/net/ipv4/ip_forward", "1").expect_err("it changes no sysctl"));
        assert!(fs::read_to_string("/proc/self/net/tcp").is_ok(), "that it needs");
    }

    #[test]
    #[ignore = "needs root: becomes another user"]
    fn a_confined_worker_reaches_neither_files_nor_sockets_of_roots_nor_its_own_configuration() {
        if let Some(dir) = std::env::var_os(DIRECTORY) {
            return try_everything(Path::new(&dir));
        }
        let dir = tempfile::tempdir().expect("a directory");
        let mode =
            |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).expect("a mode");
        mode(dir.path(), 0o755);
        fs::create_dir(dir.path().join("state")).expect("made");
        for (name, access) in [("sctpify.toml", 0o644), ("secret", 0o600), ("open", 0o644)] {
            fs::write(dir.path().join(name), "").expect("written");
            mode(&dir.path().join(name), access);
        }
        let socket = dir.path().join("root.sock");
        let _listener = UnixListener::bind(&socket).expect("a socket");
        mode(&socket, 0o600);
        let test = "a_confined_worker_reaches_neither_files_nor_sockets_of_roots_nor_its_own_configuration";
        let name = format!("{}::{test}", module_path!().split_once("::").expect("a module of a crate").1);
        let mut command = Command::new(std::env::current_exe().expect("this program's file"));
        command.args(["--exact", &name, "--ignored", "--test-threads", "1"]).env(DIRECTORY, dir.path());
        let output = command.output().expect("it runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
}
