//! Keys for protected associations: the proof of the peer's identity, and the keys that seal packets in both directions.
//!
//! A TLS 1.3 handshake is carried in messages of the association (PPID 4242), as in draft-porfiri-tsvwg-sctp-dtls-handshake-01. This
//! handshake differs from the draft in these points, which [ADR 0027](../../../docs/adr/0027-packets-are-sealed-in-dtls-chunks.md)
//! explains:
//!
//! - The client sends its first message together with the COOKIE ECHO.
//! - Both ends have the keys as soon as the server has answered, so the client's last flight is sealed.
//! - The keys depend on the whole INIT and INIT ACK. If one of these chunks is changed on the way, the two ends get different keys.
//!
//! The `sctp` engine seals packets with the [ciphers](sctp::RecordCipher) that result from the handshake.
//!
//! A host's identity is an Ed25519 key without a certificate (RFC 7250). A [`PublicKey`] identifies a host. The handshake reports the
//! peer's key in [`Step::Peer`], and the caller decides whether to accept it. This crate implements no cryptographic algorithm. `rustls`
//! implements TLS, and `aws-lc-rs` implements the AEADs, HKDF and Ed25519.
//!
//! Begin with [`HostKey`], [`Keyring`] and [`KeyManager`], which drives a [`Session`] for each association of an endpoint. A caller that
//! must not wait for cryptography uses [`Sessions`] in a separate thread, instead of a [`KeyManager`].

#![forbid(unsafe_code)]

mod cipher;
mod identity;
mod key_file;
mod manager;
mod schedule;
mod session;
mod sessions;
mod signing;
mod tls;

pub use identity::{Binding, HostKey, IdentityError, PublicKey};
pub use key_file::KeyFileError;
pub use manager::KeyManager;
pub use schedule::{METHOD, PresharedKey};
pub use session::{KeyingError, Keyring, Session, Step};
pub use sessions::{Outcome, Sessions, Task, apply, had_other_keys, protection};
pub use signing::{HANDSHAKE_CONTENT_MAX, sign_handshake};
