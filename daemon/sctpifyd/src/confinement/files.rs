//! Restricts the files that a process can reach, with Landlock.
//!
//! Rules name existing directories. A directory that is missing at the start stays out of reach.

use std::path::{Path, PathBuf};

use control::DaemonArgs;
use landlock::{
    ABI, Access, AccessFs, BitFlags, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetStatus, Scope,
};

/// Directories of the files and libraries that name resolution reads. The list holds all of /etc, because a rule for a single file would
/// not cover its replacement. File permissions still limit the worker to the world-readable files of /etc.
const NAMES: [&str; 6] =
    ["/etc", "/run/systemd/resolve", "/run/NetworkManager", "/usr/lib", "/lib", "/lib64"];
/// The sysctls that are restored after the worker was killed.
const SYSCTLS: &str = "/proc/sys/net";
/// The kernel's lists of sockets and interfaces, and the namespaces of this process.
const OWN_PROC: &str = "/proc/self";

/// The directories that stay within reach, and the access allowed below them.
#[derive(Clone)]
pub(super) struct Reach {
    below: Vec<(PathBuf, BitFlags<AccessFs>)>,
    /// Kinds of access that are limited to processes under the same restriction.
    scope: BitFlags<Scope>,
}

impl Reach {
    /// Allows access to the kernel's lists and, with `asks_names`, to name resolution.
    pub(super) fn of_worker(asks_names: bool) -> Reach {
        let look = AccessFs::ReadFile | AccessFs::ReadDir;
        let mut below = vec![(OWN_PROC.into(), look)];
        if asks_names {
            below.extend(NAMES.map(|path| (path.into(), look)));
        }
        Reach { below, scope: Scope::AbstractUnixSocket | Scope::Signal }
    }

    /// Allows access to the daemon's own files and the sysctls. Leaves signals unrestricted, because the supervisor signals the worker,
    /// which started earlier and is outside the restriction. `keys` is the path of the key file, or empty.
    pub(super) fn of_supervisor(args: &DaemonArgs, keys: &str) -> Reach {
        let change = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::Truncate;
        let mut reach =
            Reach { below: vec![(SYSCTLS.into(), change)], scope: Scope::AbstractUnixSocket.into() };
        reach.add_own_files(args, keys);
        reach
    }

    /// Adds the directories of the daemon's own files. Files of the state directory and the configuration's directory may be replaced. The
    /// key file's directory is read-only, and the control socket's directory allows only removal.
    pub(super) fn add_own_files(&mut self, args: &DaemonArgs, keys: &str) {
        let replace = AccessFs::ReadFile
            | AccessFs::ReadDir
            | AccessFs::WriteFile
            | AccessFs::Truncate
            | AccessFs::MakeReg
            | AccessFs::MakeDir
            | AccessFs::RemoveFile;
        self.below.push((args.state_dir.clone(), replace));
        self.below.push((directory_of(&args.config), replace));
        if let Ok(linked) = args.config.canonicalize() {
            self.below.push((directory_of(&linked), AccessFs::ReadFile.into()));
        }
        self.below.push((directory_of(&args.control), AccessFs::RemoveFile.into()));
        if !keys.is_empty() {
            self.below.push((directory_of(Path::new(keys)), AccessFs::ReadFile.into()));
        }
    }

    /// Denies the calling thread access to all files outside the listed directories. Returns the list of accessible paths.
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
