//! Protects a peer's packets: manages its key, and accepts or refuses the other end's key. Begin with
//! [`Keys::open`].

use crate::options::Options;
use anyhow::Result;
use base::Time;
use keying::{HostKey, KeyManager, Keyring, Outcome, PublicKey};
use sctp::{AbortCause, AssociationId, Endpoint, Event};

/// Key management of this end's associations.
pub(crate) struct Keys {
    manager: KeyManager,
    /// Key that the other end must have; any key if `None`.
    wanted: Option<PublicKey>,
}

impl Keys {
    /// Reads or creates this end's key, and prints its public part.
    ///
    /// # Errors
    /// When the key file cannot be read or written, or holds no key.
    pub(crate) fn open(options: &Options) -> Result<Keys> {
        let key = match &options.host_key {
            Some(path) => HostKey::load_or_create(path)?,
            None => HostKey::generate()?,
        };
        println!("own key {}", key.public());
        Ok(Keys { manager: KeyManager::new(Keyring::new(key)?, None), wanted: options.peer_key })
    }

    pub(crate) fn begin(&mut self, now: Time, id: AssociationId, engine: &mut Endpoint) -> Result<()> {
        Ok(self.manager.begin(now, id, engine)?)
    }

    /// Handles an event, and prints the other end's key once it is known. Returns true if this end has
    /// aborted the association.
    pub(crate) fn follow(
        &mut self,
        now: Time,
        id: AssociationId,
        event: &Event,
        engine: &mut Endpoint,
    ) -> bool {
        match self.manager.on_event(now, id, event, engine) {
            Some(Outcome::Peer { key, .. }) if self.wanted.is_none_or(|wanted| wanted == key) => {
                println!("peer key {key}");
                self.manager.accept(now, id, engine);
                false
            }
            Some(Outcome::Peer { key, .. }) => {
                println!("peer key {key}: not the one of --peer-key");
                engine.abort(now, id, AbortCause::user("another key was expected"));
                true
            }
            Some(Outcome::Failed(error)) => {
                println!("no keys: {error}");
                true
            }
            None => false,
        }
    }
}
