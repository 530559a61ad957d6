//! The files that a process can still reach, by Landlock.
//!
//! Rules name directories, which must exist: what is missing at the start stays out of reach.

use std::path::{Path, PathBuf};

use control::DaemonArgs;
use landlock::{
    ABI, Access, AccessFs, BitFlags, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetStatus, Scope,
};

/// Where a host's names and the code that resolves them lie.
const NAMES: [&str; 4] = ["/etc", "/usr/lib", "/lib", "/lib64"];
/// The sysctls that taking down puts back.
const SYSCTLS: &str = "/proc/sys/net";
/// The kernel's lists of sockets and interfaces, and this process's own namespaces.
const OWN_PROC: &str = "/proc/self";

/// Directories, and what may be done below them.
#[derive(Clone)]
pub(super) struct Reach {
    below: Vec<(PathBuf, BitFlags<AccessFs>)>,
    /// What is kept within the process.
    scope: BitFlags<Scope>,
}

impl Reach {
    /// The daemon's own directories; `asks_names` where it must resolve names.
    /// `keys` is the file with keys, if any.
    pub(super) fn of_worker(args: &DaemonArgs, asks_names: bool, keys: &str) -> Reach {
        let replace = AccessFs::ReadFile
            | AccessFs::ReadDir
            | AccessFs::WriteFile
            | AccessFs::Truncate
            | AccessFs::MakeReg
            | AccessFs::MakeDir
            | AccessFs::RemoveFile;
        let mut reach = Reach::of_supervisor();
        reach.scope |= Scope::Signal;
        reach.below.push((args.state_dir.clone(), replace));
        reach.below.push((directory_of(&args.config), replace));
        if let Ok(linked) = args.config.canonicalize() {
            reach.below.push((directory_of(&linked), AccessFs::ReadFile.into()));
        }
        reach.below.push((directory_of(&args.control), AccessFs::RemoveFile.into()));
        reach.below.push((OWN_PROC.into(), AccessFs::ReadFile | AccessFs::ReadDir));
        if !keys.is_empty() {
            reach.below.push((directory_of(Path::new(keys)), AccessFs::ReadFile.into()));
        }
        if asks_names {
            reach.below.extend(NAMES.map(|path| (path.into(), AccessFs::ReadFile | AccessFs::ReadDir)));
        }
        reach
    }

    /// Sysctls only; and it can signal its worker, which was started before.
    pub(super) fn of_supervisor() -> Reach {
        let change = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::Truncate;
        Reach { below: vec![(SYSCTLS.into(), change)], scope: Scope::AbstractUnixSocket.into() }
    }

    /// Puts everything else out of the calling thread's reach.
    pub(super) fn apply(&self) -> Result<String, String> {
        let failed = |error: landlock::RulesetError| format!("Landlock: {error}");
        let everything = AccessFs::from_all(ABI::V5);
        let ruleset = Ruleset::default().handle_access(everything).map_err(failed)?;
        let ruleset = ruleset.scope(self.scope).map_err(failed)?;
        let mut ruleset = ruleset.create().map_err(failed)?;
        let mut names = Vec::new();
        for (path, access) in &self.below {
            if let Ok(descriptor) = PathFd::new(path) {
                ruleset = ruleset.add_rule(PathBeneath::new(descriptor, *access)).map_err(failed)?;
                names.push(path.display().to_string());
            }
        }
        match ruleset.restrict_self().map_err(failed)?.ruleset {
            RulesetStatus::NotEnforced => {
                Err("this kernel has no Landlock (Linux 5.13, lsm=landlock)".to_owned())
            }
            RulesetStatus::FullyEnforced => Ok(names.join(", ")),
            RulesetStatus::PartiallyEnforced => {
                Ok(format!("{} (an older kernel's Landlock)", names.join(", ")))
            }
        }
    }
}

fn directory_of(file: &Path) -> PathBuf {
    match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.into(),
        _ => ".".into(),
    }
}
