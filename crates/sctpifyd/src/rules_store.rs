//! The rulebook, shared by the shard (which decides) and the control server (which changes), and its files.
//!
//! Invariant: what is configured is what the files say, and the rulebook has of it what takes effect before a restart; a change
//! that cannot be written is not made.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use control::{DaemonArgs, PendingChange, SettingsReport};
use rules::{Advertise, Carriers, Chain, Outcome, Policy, Rulebook, RulesTable, Settings};
use sctp::{AssociationConfig, AuthConfig};

use crate::archive::{Archive, ArchiveError, Loaded};
use crate::clock::today;
use crate::peer_keys::PeerKeys;

/// A handle to the one rulebook.
#[derive(Clone)]
pub(crate) struct RulesStore {
    book: Arc<Mutex<Rulebook>>,
    configured: Arc<Mutex<Settings>>,
    keys: Arc<Mutex<PeerKeys>>,
    archive: Archive,
    serves_a_command: bool,
}

impl RulesStore {
    /// Loads settings and rules; missing files are the defaults.
    pub(crate) fn load(args: &DaemonArgs, archive: Archive) -> anyhow::Result<RulesStore> {
        let serves_a_command = args.inside.is_some();
        // Still with this process's own rights: the supervisor is not asked before both are set up.
        let loaded = Archive::own(args).load()?;
        let settings = for_whom(loaded.settings, serves_a_command);
        let configured = Arc::new(Mutex::new(settings.clone()));
        let book = Arc::new(Mutex::new(Rulebook::new(settings, loaded.table)));
        Ok(RulesStore {
            book,
            configured,
            keys: Arc::new(Mutex::new(loaded.keys)),
            archive,
            serves_a_command,
        })
    }

    /// The rulebook, locked. Held for moments only: the shard waits for it.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Rulebook> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The settings in force.
    pub(crate) fn settings(&self) -> Settings {
        self.lock().settings.clone()
    }

    /// The settings of the file. Those that need a restart are not in force before one.
    pub(crate) fn configured(&self) -> Settings {
        self.configured.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The changes that wait for a restart.
    pub(crate) fn pending(&self) -> Vec<PendingChange> {
        SettingsReport::all(&self.configured()).beside(&self.settings()).pending()
    }

    /// There is no page, for its port cannot be had.
    pub(crate) fn goes_without_page(&self) {
        self.lock().settings.page_port = 0;
    }

    fn configure(&self, settings: Settings) {
        let mut book = self.lock();
        book.settings = settings.until_restart(&book.settings);
        *self.configured.lock().unwrap_or_else(PoisonError::into_inner) = settings;
    }

    /// Counts what became of a connection to or from `address`, for the rule that decided about it.
    pub(crate) fn record(&self, chain: Chain, address: SocketAddr, outcome: Outcome) {
        self.lock().record(chain, address.ip(), address.port(), today(), outcome);
    }

    /// Changes the table, in the file first.
    pub(crate) fn change_table<T, E: ToString>(
        &self,
        change: impl FnOnce(&mut RulesTable) -> Result<T, E>,
    ) -> Result<T, ArchiveError> {
        let mut table = self.lock().table.clone();
        let outcome = change(&mut table).map_err(|error| ArchiveError::Refused(error.to_string()))?;
        self.archive.save_rules(&table)?;
        let mut book = self.lock();
        table.keep_hits_of(&book.table);
        book.table = table;
        Ok(outcome)
    }

    /// Changes one setting, in the file first.
    pub(crate) fn set(&self, name: &str, value: &str) -> Result<&'static rules::Setting, ArchiveError> {
        let mut settings = self.configured();
        let setting = settings.set(name, value).map_err(|error| ArchiveError::Refused(error.to_string()))?;
        self.archive.set(setting, value)?;
        self.configure(settings);
        Ok(setting)
    }

    /// Changes the default policy of a chain, in the file first.
    pub(crate) fn set_default(&self, chain: Chain, policy: Policy) -> Result<(), ArchiveError> {
        let name = match chain {
            Chain::Local => "default_local_enable",
            Chain::Remote => "default_remote_enable",
        };
        self.set(name, if policy.is_enable() { "1" } else { "0" }).map(|_| ())
    }

    /// What connections to the program that listens there tell routers of their send buffers.
    pub(crate) fn advertise(&self, server: SocketAddr) -> Advertise {
        let book = self.lock();
        book.explain(Chain::Local, server.ip(), server.port()).advertise(&book.settings)
    }

    /// How associations with this host are authenticated; none without a key for it.
    pub(crate) fn auth_for(&self, peer: IpAddr) -> Option<AuthConfig> {
        let is_required = self.settings().peer_key_required;
        self.keys().auth_for(peer, is_required)
    }

    /// Whether an association with this host is up only if the host has proven a key.
    pub(crate) fn is_keyed(&self, peer: IpAddr) -> bool {
        self.auth_for(peer).is_some_and(|auth| auth.required)
    }

    /// The configuration of an association with this host, with its key if there is one.
    pub(crate) fn keyed(&self, peer: IpAddr, config: AssociationConfig) -> AssociationConfig {
        match self.auth_for(peer) {
            Some(auth) => AssociationConfig { auth, ..config },
            None => config,
        }
    }

    /// The keys shared with other hosts, locked.
    pub(crate) fn keys(&self) -> MutexGuard<'_, PeerKeys> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads all files again; if one is wrong, all stays as it was.
    pub(crate) fn reload(&self) -> Result<(), ArchiveError> {
        let Loaded { settings, mut table, keys } = self.archive.load()?;
        *self.keys() = keys;
        let peer_keys = settings.peer_keys.clone();
        self.configure(for_whom(settings, self.serves_a_command));
        let mut book = self.lock();
        // Unlike others that name a file, this one is read again.
        book.settings.peer_keys = peer_keys;
        table.keep_hits_of(&book.table);
        book.table = table;
        Ok(())
    }
}

/// The settings of the file. A command without privileges asked for SCTP by being run, and has UDP only.
fn for_whom(settings: Settings, serves_a_command: bool) -> Settings {
    match serves_a_command {
        false => settings,
        true => Settings { default_remote_enable: true, carriers: Carriers::Udp, ..settings },
    }
}
