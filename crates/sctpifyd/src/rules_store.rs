//! The rulebook, shared by the shard (which decides) and the control server (which changes), and its files.
//!
//! Invariant: what is in force is what the files say; a change that cannot be written is not made.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use control::{DaemonArgs, FileError};
use rules::{Advertise, Carriers, Chain, Outcome, Policy, Rulebook, RulesTable, Settings};
use sctp::{AssociationConfig, AuthConfig};

use crate::clock::today;
use crate::peer_keys::PeerKeys;

/// A handle to the one rulebook.
#[derive(Clone)]
pub(crate) struct RulesStore {
    book: Arc<Mutex<Rulebook>>,
    keys: Arc<Mutex<PeerKeys>>,
    args: Arc<DaemonArgs>,
}

impl RulesStore {
    /// Loads settings and rules; missing files are the defaults.
    pub(crate) fn load(args: &DaemonArgs) -> anyhow::Result<RulesStore> {
        let settings = settings(args)?;
        let table = control::load_rules(&args.rules_file())?;
        let keys = Arc::new(Mutex::new(PeerKeys::load(&settings.peer_keys)?));
        let book = Arc::new(Mutex::new(Rulebook::new(settings, table)));
        Ok(RulesStore { book, keys, args: Arc::new(args.clone()) })
    }

    /// The rulebook, locked. Held for moments only: the shard waits for it.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Rulebook> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The settings as they are now.
    pub(crate) fn settings(&self) -> Settings {
        self.lock().settings.clone()
    }

    /// Counts what became of a connection to or from `address`, for the rule that decided about it.
    pub(crate) fn record(&self, chain: Chain, address: SocketAddr, outcome: Outcome) {
        self.lock().record(chain, address.ip(), address.port(), today(), outcome);
    }

    /// Changes the table, in the file first.
    pub(crate) fn change_table<T, E: ToString>(
        &self,
        change: impl FnOnce(&mut RulesTable) -> Result<T, E>,
    ) -> Result<T, StoreError> {
        let mut table = self.lock().table.clone();
        let outcome = change(&mut table).map_err(|error| StoreError::Refused(error.to_string()))?;
        control::save_rules(&self.args.rules_file(), &table)?;
        let mut book = self.lock();
        table.keep_hits_of(&book.table);
        book.table = table;
        Ok(outcome)
    }

    /// Changes one setting, in the file first.
    pub(crate) fn set(&self, name: &str, value: &str) -> Result<&'static rules::Setting, StoreError> {
        let mut settings = self.settings();
        let setting = settings.set(name, value).map_err(|error| StoreError::Refused(error.to_string()))?;
        control::save_setting(&self.args.config, setting.name, value)?;
        self.lock().settings = settings;
        Ok(setting)
    }

    /// Changes the default policy of a chain, in the file first.
    pub(crate) fn set_default(&self, chain: Chain, policy: Policy) -> Result<(), StoreError> {
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
    pub(crate) fn reload(&self) -> Result<(), StoreError> {
        let settings = settings(&self.args)?;
        let keys = PeerKeys::load(&settings.peer_keys).map_err(|e| StoreError::Refused(e.to_string()))?;
        let mut table = control::load_rules(&self.args.rules_file())?;
        let mut book = self.lock();
        table.keep_hits_of(&book.table);
        *self.keys() = keys;
        book.settings = settings;
        book.table = table;
        Ok(())
    }
}

/// The settings of the file. A command without privileges asked for SCTP by being run, and has UDP only.
fn settings(args: &DaemonArgs) -> Result<Settings, FileError> {
    let settings = control::load_config(&args.config)?;
    Ok(match args.inside {
        None => settings,
        Some(_) => Settings { default_remote_enable: true, carriers: Carriers::Udp, ..settings },
    })
}

/// Why a change was not made.
#[derive(Debug)]
pub(crate) enum StoreError {
    /// It makes no sense; the text says why.
    Refused(String),
    /// A file could not be read or written.
    File(FileError),
}

impl From<FileError> for StoreError {
    fn from(error: FileError) -> StoreError {
        StoreError::File(error)
    }
}
