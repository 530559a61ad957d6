//! Keys for protected associations: who the peer is, and the keys that both ends seal packets with.
//!
//! A handshake of TLS 1.3 travels as messages of the association (PPID 4242), after
//! draft-porfiri-tsvwg-sctp-dtls-handshake-01, with these differences, which
//! [ADR 0027](../../../docs/adr/0027-packets-are-sealed-in-dtls-chunks.md) explains: the client begins with the COOKIE ECHO; both ends
//! have the keys as soon as the server has answered, so that the last flight travels sealed; and the keys are bound to INIT and INIT ACK
//! as wholes. Packets are sealed by the `sctp` engine with the [ciphers](sctp::RecordCipher) that come of it.
//!
//! Identity is an Ed25519 key without a certificate (RFC 7250): a [`PublicKey`] names a host. Whether a key is the right one is the
//! caller's decision, by what it is given in [`Step::Peer`]. No algorithm is of this crate's own: TLS is that of
//! `rustls`, and AEADs, HKDF and Ed25519 are those of `aws-lc-rs`.
//!
//! Begin with [`HostKey`], [`Keyring`] and [`KeyManager`], which drives a [`Session`] for each association of an endpoint. A caller
//! that must not wait for cryptography runs [`Sessions`] in a thread instead.

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
