//! Shares the rulebook between threads, and keeps its files. The shard makes decisions from the rulebook. The control server
//! requests changes, and the thread of signals requests reloads.
//!
//! The files are the configuration. The rulebook holds the part of the configuration that is in force. If a change cannot be
//! written to the files, the change is not made. While the daemon runs, only the shard changes rules and settings in the
//! rulebook, because the kernel must follow each change ([`crate::interception`]). Before the shard runs, the start of the worker
//! may clear the settings of a page or listener that is not available. The kernel does not depend on these settings. Changes are
//! made one at a time.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use control::{DaemonArgs, PendingChange, SettingsReport};
use keying::PresharedKey;
use rules::{Advertisement, Carriers, Chain, Kind, Outcome, Policy, Rulebook, RulesTable, Secure, Settings};
use sctp::{AssociationConfig, AuthConfig};

use crate::archive::{Archive, ArchiveError, Loaded};
use crate::clock::today;
use crate::commands::Handle;
use crate::manual::{Manual, Socket};
use crate::peer_keys::PeerKeys;

/// Handle to the process's rulebook.
#[derive(Clone)]
pub(crate) struct RulesStore {
    book: Arc<Mutex<Rulebook>>,
    configured: Arc<Mutex<Settings>>,
    keys: Arc<Mutex<PeerKeys>>,
    archive: Archive,
    /// Lock that is held while a change is written and put in force.
    changing: Arc<Mutex<()>>,
    serves_a_command: bool,
    manual: Manual,
}

/// Parts of the configuration to put in force. A part that is `None` stays unchanged.
#[derive(Default)]
pub(crate) struct Draft {
    /// The settings of the file.
    settings: Option<Settings>,
    table: Option<RulesTable>,
    /// The shared keys of the file that the setting `peer_keys` names.
    keys: Option<PeerKeys>,
}

impl RulesStore {
    /// Loads settings, rules and shared keys. Without a file of settings or a file of rules, the defaults apply.
    pub(crate) fn load(args: &DaemonArgs, archive: Archive) -> anyhow::Result<RulesStore> {
        let serves_a_command = args.inside.is_some();
        // This process has not given up its privileges yet, so it reads the files itself. Requests to the supervisor are
        // possible only after both processes are set up.
        let loaded = Archive::own(args).load()?;
        let settings = for_whom(loaded.settings, serves_a_command);
        let configured = Arc::new(Mutex::new(settings.clone()));
        let book = Arc::new(Mutex::new(Rulebook::new(settings, loaded.table)));
        Ok(RulesStore {
            book,
            configured,
            keys: Arc::new(Mutex::new(loaded.keys)),
            archive,
            changing: Arc::default(),
            serves_a_command,
            manual: Manual::default(),
        })
    }

    /// Creates a store without files.
    #[cfg(test)]
    pub(crate) fn of(settings: Settings, table: RulesTable) -> RulesStore {
        let args = <DaemonArgs as clap::Parser>::parse_from(["sctpifyd"]);
        RulesStore {
            book: Arc::new(Mutex::new(Rulebook::new(settings.clone(), table))),
            configured: Arc::new(Mutex::new(settings)),
            keys: Arc::default(),
            archive: Archive::own(&args),
            changing: Arc::default(),
            serves_a_command: false,
            manual: Manual::default(),
        }
    }

    /// Locks the rulebook. Callers hold the lock only briefly, because the shard waits for it.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Rulebook> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the settings in force.
    pub(crate) fn settings(&self) -> Settings {
        self.lock().settings.clone()
    }

    /// Returns the settings of the file. They include changes that take effect only after a restart.
    pub(crate) fn configured(&self) -> Settings {
        self.configured.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the changes that wait for a restart.
    pub(crate) fn pending(&self) -> Vec<PendingChange> {
        SettingsReport::all(&self.configured()).beside(&self.settings()).pending()
    }

    /// Sets the setting `page_port` to 0, because the page's port is not available. May be called only before the shard runs.
    pub(crate) fn goes_without_page(&self) {
        self.lock().settings.page_port = 0;
    }

    /// Clears the setting `metrics_listen`, because the listener's address or the token is not available. May be called only
    /// before the shard runs.
    pub(crate) fn goes_without_metrics_listener(&self) {
        self.lock().settings.metrics_listen = None;
    }

    /// Counts the outcome of a connection to or from `address` for the rule that decided on the connection.
    pub(crate) fn record(&self, chain: Chain, address: SocketAddr, outcome: Outcome) {
        self.lock().record(chain, address.ip(), address.port(), today(), outcome);
    }

    /// Changes the rules table in the file, then makes the shard put the table in force.
    pub(crate) fn change_table<T, E: ToString>(
        &self,
        shard: &Handle,
        change: impl FnOnce(&mut RulesTable) -> Result<T, E>,
    ) -> Result<T, ArchiveError> {
        let _alone = self.change();
        let mut table = self.lock().table.clone();
        let outcome = change(&mut table).map_err(|error| ArchiveError::Refused(error.to_string()))?;
        self.archive.save_rules(&table)?;
        shard.put_in_force(Draft { table: Some(table), ..Draft::default() })?;
        Ok(outcome)
    }

    /// Changes one setting in the file, then makes the shard put the setting in force.
    pub(crate) fn set(
        &self,
        shard: &Handle,
        name: &str,
        value: &str,
    ) -> Result<&'static rules::Setting, ArchiveError> {
        let _alone = self.change();
        let mut settings = self.configured();
        let setting = settings.set(name, value).map_err(|error| ArchiveError::Refused(error.to_string()))?;
        let table = match setting.kind {
            Kind::Rules => {
                let mut table = self.lock().table.clone();
                let declared = table.declare(&settings.rules);
                declared.map_err(|error| ArchiveError::Refused(error.to_string()))?;
                self.weaker(&table);
                Some(table)
            }
            _ => None,
        };
        self.archive.set(setting, value)?;
        shard.put_in_force(Draft { settings: Some(settings), table, ..Draft::default() })?;
        Ok(setting)
    }

    /// Changes the default policy of a chain in the file, then makes the shard put the policy in force.
    pub(crate) fn set_default(
        &self,
        shard: &Handle,
        chain: Chain,
        policy: Policy,
    ) -> Result<(), ArchiveError> {
        let name = Rulebook::default_setting(chain);
        self.set(shard, name, if policy.is_enable() { "1" } else { "0" }).map(|_| ())
    }

    fn change(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts the draft's parts in force. Only the shard may call this method.
    pub(crate) fn install(&self, draft: Draft) {
        let mut book = self.lock();
        if let Some(settings) = draft.settings {
            let peer_keys = settings.peer_keys.clone();
            book.settings = settings.until_restart(&book.settings);
            *self.configured.lock().unwrap_or_else(PoisonError::into_inner) = settings;
            if let Some(keys) = draft.keys {
                *self.keys() = keys;
                // Unlike other settings that name a file, `peer_keys` is in force as soon as the files are read again.
                book.settings.peer_keys = peer_keys;
            }
        }
        if let Some(mut table) = draft.table {
            table.keep_hits_of(&book.table);
            book.table = table;
        }
    }

    /// Returns the listeners for which programs requested SCTP.
    pub(crate) fn manual(&self) -> &Manual {
        &self.manual
    }

    /// Reports whether a program requested SCTP for this particular socket, and the rules and settings allow the request.
    pub(crate) fn is_asked_for(&self, server: SocketAddr, socket: Socket) -> bool {
        let (is_forbidden, of_users) = {
            let book = self.lock();
            (book.forbids_asking(server.ip(), server.port()).is_some(), book.settings.manual_listen)
        };
        !is_forbidden && self.manual.has(socket, of_users)
    }

    /// Reports whether any program on this host is reachable over SCTP.
    pub(crate) fn serves_any(&self) -> bool {
        let (by_rules, is_on) = {
            let book = self.lock();
            (book.serves_any(), book.settings.enable)
        };
        by_rules || (is_on && self.is_any_asked_for())
    }

    /// Reports whether a program requested SCTP for any of its listeners, and the settings allow the request.
    pub(crate) fn is_any_asked_for(&self) -> bool {
        let of_users = self.lock().settings.manual_listen;
        self.manual.has_any(of_users)
    }

    /// Returns the form and interval of send-buffer advertisements on connections to the program that listens
    /// on `server`.
    pub(crate) fn advertisement(&self, server: SocketAddr) -> Advertisement {
        let book = self.lock();
        book.explain(Chain::Local, server.ip(), server.port()).advertisement(&book.settings)
    }

    /// Returns the authentication of associations with `peer`, or `None` if no key covers `peer`.
    pub(crate) fn auth_for(&self, peer: IpAddr) -> Option<AuthConfig> {
        let is_required = self.settings().peer_key_required;
        self.keys().auth_for(peer, is_required)
    }

    /// Reports whether an association with `peer` is established only after `peer` has proven a shared key.
    pub(crate) fn is_keyed(&self, peer: IpAddr) -> bool {
        self.auth_for(peer).is_some_and(|auth| auth.required)
    }

    /// Returns `config` with the authentication of associations with `peer`. Without a shared key, `config` stays unchanged.
    pub(crate) fn keyed(&self, peer: IpAddr, config: AssociationConfig) -> AssociationConfig {
        match self.auth_for(peer) {
            Some(auth) => AssociationConfig { auth, ..config },
            None => config,
        }
    }

    /// Returns the encryption that a local rule requires of connections to the program that listens on `server`.
    pub(crate) fn secure(&self, server: SocketAddr) -> Option<Secure> {
        let decision = self.lock().explain(Chain::Local, server.ip(), server.port());
        decision.secure().filter(|secure| secure.is_required()).cloned()
    }

    /// Returns the key that this host shares with a peer. The key is mixed into the keys of encrypted associations.
    pub(crate) fn preshared(&self, peer: IpAddr) -> Option<PresharedKey> {
        let is_required = self.settings().peer_key_required;
        self.keys().preshared(peer, is_required)
    }

    /// Locks the keys shared with other hosts.
    pub(crate) fn keys(&self) -> MutexGuard<'_, PeerKeys> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads all files again. If one of the files has a fault, the configuration in force stays unchanged. Returns the number of rules that
    /// refused plain TCP and no longer do.
    pub(crate) fn reload(&self, shard: &Handle) -> Result<usize, ArchiveError> {
        let _alone = self.change();
        let Loaded { settings, table, keys } = self.archive.load()?;
        let settings = for_whom(settings, self.serves_a_command);
        let weaker = self.weaker(&table);
        shard.put_in_force(Draft { settings: Some(settings), table: Some(table), keys: Some(keys) })?;
        Ok(weaker)
    }

    /// Returns the number of matches for which plain TCP is refused, and would not be with this table. Logs this number.
    fn weaker(&self, table: &RulesTable) -> usize {
        let old = self.lock().table.clone();
        let weaker = table.weaker_than(&old);
        if weaker > 0 {
            tracing::warn!(rules = weaker, "rules that refused plain TCP no longer do");
        }
        weaker
    }
}

/// Adapts the settings of the file to the daemon's purpose. A daemon that serves one command of `sctpify run` uses SCTP by default,
/// because the user requested SCTP with `sctpify run`. Its only carrier is UDP, because IP protocol 132 needs privileges.
fn for_whom(settings: Settings, serves_a_command: bool) -> Settings {
    match serves_a_command {
        false => settings,
        true => Settings { default_remote_enable: true, carriers: Carriers::Udp, ..settings },
    }
}
