//! Protection of a peer's packets: its key, and its decision on the other end's. Begin with [`Keys::open`].

use crate::options::Options;
use anyhow::{Context, Result};
use base::Time;
use keying::{HostKey, KeyManager, Keyring, Outcome, PublicKey};
use sctp::{AbortCause, AssociationId, Endpoint, Event};
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The keys of one end.
pub(crate) struct Keys {
    manager: KeyManager,
    /// The key that the other end must have.
    wanted: Option<PublicKey>,
}

impl Keys {
    /// Reads or makes this end's key, and prints the public one.
    ///
    /// # Errors
    /// When the file cannot be read or written, or holds no key.
    pub(crate) fn open(options: &Options) -> Result<Keys> {
        let key = match &options.host_key {
            Some(path) => stored_key(path).with_context(|| path.display().to_string())?,
            None => HostKey::generate()?,
        };
        println!("own key {}", key.public());
        Ok(Keys { manager: KeyManager::new(Keyring::new(key)?, None), wanted: options.peer_key })
    }

    pub(crate) fn begin(&mut self, now: Time, id: AssociationId, engine: &mut Endpoint) -> Result<()> {
        Ok(self.manager.begin(now, id, engine)?)
    }

    /// Follows an event, and prints the other end's key.
    pub(crate) fn follow(&mut self, now: Time, id: AssociationId, event: &Event, engine: &mut Endpoint) {
        match self.manager.on_event(now, id, event, engine) {
            Some(Outcome::Peer { key, .. }) if self.wanted.is_none_or(|wanted| wanted == key) => {
                println!("peer key {key}");
                self.manager.accept(now, id, engine);
            }
            Some(Outcome::Peer { key, .. }) => {
                println!("peer key {key}: not the one of --peer-key");
                engine.abort(now, id, AbortCause::user("another key was expected"));
            }
            Some(Outcome::Failed(error)) => println!("no keys: {error}"),
            None => {}
        }
    }
}

/// Reads the key of a file, or creates the file with a new one that only its owner may read.
fn stored_key(path: &Path) -> Result<HostKey> {
    match File::open(path) {
        Ok(mut file) => {
            let mut der = Vec::new();
            file.read_to_end(&mut der)?;
            Ok(HostKey::from_pkcs8(&der)?)
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let key = HostKey::generate()?;
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
            file.write_all(&key.to_pkcs8()?)?;
            Ok(key)
        }
        Err(error) => Err(error.into()),
    }
}
