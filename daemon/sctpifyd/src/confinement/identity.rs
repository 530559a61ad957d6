//! Chooses and assumes the worker's user id.
//!
//! Root may connect to every UNIX socket of the host. Some of these sockets grant root's powers: D-Bus, systemd and container engines.
//! Their servers check the user id of the client, not its capabilities. The worker therefore becomes a user that owns no other process and
//! no file. The supervisor stays root: it kills the worker, cleans up and writes files.
//!
//! Each thread changes its own ids with direct system calls. Capabilities survive the change, so later setup still works.
//! [`super::Confinement::apply`] drops the capabilities.

use anyhow::{Context, Result, bail};
use control::{DaemonArgs, Measure};
use nix::unistd::{Gid, Group, Uid, User, geteuid, getgrouplist};
use rules::Settings;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_keep_capabilities, set_thread_groups,
    set_thread_res_gid, set_thread_res_uid,
};

use super::is_unix;

/// The setting that names the user.
pub(super) const SETTING: &str = "worker_user";
/// The user that the package creates.
const USUAL: &str = "sctpify";
/// User ids for hosts without the user [`USUAL`]. They lie between 60706 and 61183, which systemd's table of ranges leaves unused. Higher
/// ids belong to systemd's dynamic services. The user 65534 (nobody) is shared, and therefore unsuitable.
const UNUSED: std::ops::RangeInclusive<u32> = 60_899..=61_183;

/// Identity of the worker process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Identity {
    /// A user that owns no other process and no file.
    Becomes(Account),
    /// Root, because the setting `worker_user` requires root.
    Stays,
    /// The user who ran the command that the worker serves. Outside the command's user namespace, this user is not root.
    Callers,
    /// The user that started the worker. The worker has no supervisor, so it writes the daemon's files itself.
    Alone,
}

/// A user in the form that the kernel needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Account {
    name: Option<String>,
    uid: u32,
    gid: u32,
    groups: Vec<u32>,
}

impl Identity {
    /// Chooses the identity from the settings and the command line. The caller must be able to reach name services.
    ///
    /// # Errors
    /// Fails if the setting names a user that does not exist.
    pub(crate) fn of_worker(
        settings: &Settings,
        args: &DaemonArgs,
        has_supervisor: bool,
    ) -> Result<Identity> {
        if args.inside.is_some() {
            return Ok(Identity::Callers);
        }
        if settings.worker_user == "root" || settings.worker_user == "0" {
            return Ok(Identity::Stays);
        }
        if !has_supervisor {
            return Ok(Identity::Alone);
        }
        let mut account = find(&settings.worker_user)?;
        if is_unix(&settings.learned_store) {
            account.join_groups()?;
        }
        Ok(Identity::Becomes(account))
    }

    /// Assumes this identity in the calling thread.
    pub(crate) fn assume(&self) -> Measure {
        match self {
            Identity::Stays => Measure::Off,
            Identity::Callers => Measure::InForce { left: "whoever ran the command".to_owned() },
            Identity::Alone => {
                let why = format!("no supervisor writes its files, so it stays uid {}", geteuid());
                Measure::Unavailable { why }
            }
            Identity::Becomes(account) => match account.assume() {
                Ok(()) => Measure::InForce { left: account.to_string() },
                Err(error) => {
                    let why = format!("cannot become {account}: {error}");
                    Measure::Unavailable { why }
                }
            },
        }
    }
}

impl Account {
    fn of(user: &User) -> Account {
        let (uid, gid) = (user.uid.as_raw(), user.gid.as_raw());
        Account { name: Some(user.name.clone()), uid, gid, groups: Vec::new() }
    }

    /// Returns the account for an id without a name.
    fn nameless(id: u32) -> Account {
        Account { name: None, uid: id, gid: id, groups: Vec::new() }
    }

    /// Adds the user's system groups, because the store's socket may be open to one of these groups only.
    fn join_groups(&mut self) -> Result<()> {
        if let Some(name) = &self.name {
            let name = std::ffi::CString::new(name.as_str())?;
            let groups =
                getgrouplist(&name, Gid::from_raw(self.gid)).context("cannot find the user's groups")?;
            self.groups = groups.into_iter().map(Gid::as_raw).filter(|gid| *gid != 0).collect();
        }
        Ok(())
    }

    fn assume(&self) -> rustix::io::Result<()> {
        let groups: Vec<_> = self.groups.iter().map(|gid| rustix::process::Gid::from_raw(*gid)).collect();
        let (uid, gid) = (rustix::process::Uid::from_raw(self.uid), rustix::process::Gid::from_raw(self.gid));
        set_keep_capabilities(true)?;
        set_thread_groups(&groups)?;
        set_thread_res_gid(gid, gid, gid)?;
        set_thread_res_uid(uid, uid, uid)?;
        // The permitted capabilities survived the change of ids. The effective capabilities were lost, and are set again here.
        let permitted = capabilities(None)?.permitted;
        set_capabilities(
            None,
            CapabilitySets { effective: permitted, permitted, inheritable: CapabilitySet::empty() },
        )?;
        set_keep_capabilities(false)
    }
}

impl std::fmt::Display for Account {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.name {
            Some(name) => write!(f, "{name} (uid {})", self.uid),
            None => write!(f, "uid {}, otherwise unassigned", self.uid),
        }
    }
}

/// Finds the user with this name or number. If `wanted` is empty, finds the user [`USUAL`] or an unused id.
fn find(wanted: &str) -> Result<Account> {
    let named = |name: &str| User::from_name(name).with_context(|| format!("cannot look up user {name}"));
    if wanted.is_empty() {
        // The user `sctpify` is unsuitable if it has the id of root.
        return match named(USUAL)?.filter(|user| !user.uid.is_root()) {
            Some(user) => Ok(Account::of(&user)),
            None => unused(|id| {
                Ok(User::from_uid(Uid::from_raw(id))?.is_none()
                    && Group::from_gid(Gid::from_raw(id))?.is_none())
            }),
        };
    }
    if let Some(user) = named(wanted)? {
        return Ok(Account::of(&user));
    }
    match wanted.parse() {
        Ok(id) => Ok(User::from_uid(Uid::from_raw(id))?
            .map_or_else(|| Account::nameless(id), |user| Account::of(&user))),
        Err(_) => bail!(
            "setting {SETTING}: user `{wanted}` does not exist: create it (useradd --system), or leave the setting empty"
        ),
    }
}

/// Returns the account with the first unused id.
fn unused(is_free: impl Fn(u32) -> Result<bool>) -> Result<Account> {
    for id in UNUSED {
        if is_free(id)? {
            return Ok(Account::nameless(id));
        }
    }
    let (first, last) = (UNUSED.start(), UNUSED.end());
    bail!(
        "all user IDs from {first} to {last} are in use: create a user {USUAL}, or name one (setting {SETTING})"
    )
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    fn identity(worker_user: &str, has_supervisor: bool) -> Result<Identity> {
        let settings = Settings { worker_user: worker_user.to_owned(), ..Settings::default() };
        Identity::of_worker(&settings, &DaemonArgs::parse_from(["sctpifyd"]), has_supervisor)
    }

    #[test]
    fn the_worker_gets_the_first_unused_user_id() {
        let account = unused(|id| Ok(id > 60_900)).expect("a number");
        assert_eq!((account.uid, account.gid, account.groups.len()), (60_901, 60_901, 0));
        assert!(unused(|_| Ok(false)).is_err());
    }

    #[test]
    fn the_default_worker_user_is_neither_root_nor_nobody() {
        let Identity::Becomes(account) = identity("", true).expect("a user") else { panic!("it stays root") };
        assert!(![0, 65_534, u32::MAX].contains(&account.uid), "{account}");
    }

    #[test]
    fn a_user_is_found_by_name_and_number_and_an_unknown_name_is_told() {
        let Identity::Becomes(account) = identity("daemon", true).expect("a user") else {
            panic!("it stays")
        };
        let by_number = identity(&account.uid.to_string(), true).expect("a user");
        assert_eq!(by_number, Identity::Becomes(account));
        let error = identity("no-such-user", true).expect_err("nobody").to_string();
        assert!(error.contains("user `no-such-user` does not exist"), "{error}");
    }

    #[test]
    fn the_worker_keeps_its_user_without_a_supervisor_or_with_worker_user_root() {
        assert!(matches!(identity("", false).expect("told"), Identity::Alone));
        assert_eq!(identity("root", true).expect("told"), Identity::Stays);
    }
}
