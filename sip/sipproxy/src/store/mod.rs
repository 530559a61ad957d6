//! Persistence of bindings: in memory only, in a file on this host, or on a server that several proxies share.
//!
//! The loop writes each change to a file ([`Sqlite`]) before it sends the messages that depend on this change. Separate threads query a
//! server ([`Shared`]), and the loop never waits for them. Redis and PostgreSQL are behind one interface, [`backend::Backend`]. Begin with
//! [`StoreAddress`] and [`Store::open`].

mod backend;
mod own;
mod postgres;
mod postgres_tls;
mod record;
mod redis;
mod shared;
mod sqlite;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mio::Waker;
use sip::proxy::Proxy;

use crate::clock::Clock;
use crate::error::SipError;
pub(crate) use own::Own;
pub(crate) use shared::Shared;
pub use sqlite::Sqlite;

/// The location of the store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum StoreAddress {
    /// A file on this host.
    File(PathBuf),
    /// A Redis server.
    Redis(ServerAddress),
    /// A PostgreSQL server.
    Postgres(ServerAddress),
}

/// The address of a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ServerAddress {
    url: SecretUrl,
    /// File with the trusted root certificates, if the URL requests TLS.
    roots: PathBuf,
}

/// A URL that may contain a password, which `Display` and `Debug` omit.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct SecretUrl(String);

impl SecretUrl {
    fn as_str(&self) -> &str {
        &self.0
    }
}

/// Shows only scheme, host and path, because the parts before `@` and after `?` may be secret.
impl fmt::Display for SecretUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, rest) = self.0.split_once("://").unwrap_or(("", &self.0));
        let rest = rest.split(['?', '#']).next().unwrap_or_default();
        let address = rest.rsplit_once('@').map_or(rest, |(_, address)| address);
        write!(f, "{scheme}://{address}")
    }
}

impl fmt::Debug for SecretUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for StoreAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreAddress::File(path) => write!(f, "{}", path.display()),
            StoreAddress::Redis(server) | StoreAddress::Postgres(server) => write!(f, "{}", server.url),
        }
    }
}

impl StoreAddress {
    /// Parses the configured value. `roots` is the file with the trusted root certificates for TLS.
    ///
    /// # Errors
    /// A text for the user, if the value is empty, the URL is invalid, or the root certificates cannot be read. For an unknown kind of URL,
    /// the text lists the valid forms.
    pub(crate) fn parse(text: &str, roots: &Path) -> Result<StoreAddress, String> {
        let server = ServerAddress { url: SecretUrl(text.to_owned()), roots: roots.to_owned() };
        match text.split_once("://").map(|(scheme, _)| scheme) {
            None if text.is_empty() => Err("is empty: name a file, or omit it".to_owned()),
            None => Ok(StoreAddress::File(text.into())),
            Some("redis" | "rediss" | "redis+unix") => {
                redis::check(&server).map(|()| StoreAddress::Redis(server))
            }
            Some("postgres" | "postgresql") => {
                postgres::check(&server).map(|()| StoreAddress::Postgres(server))
            }
            Some(scheme) => Err(format!(
                "unknown store `{scheme}`: expected a file, redis://HOST:PORT/DB, rediss:// for TLS, redis+unix:///SOCKET or \
                 postgres://HOST:PORT/DATABASE"
            )),
        }
    }

    /// Reports whether the store uses TLS.
    pub(crate) fn has_tls(&self) -> bool {
        match self {
            StoreAddress::File(_) => false,
            StoreAddress::Redis(server) => redis::has_tls(server),
            StoreAddress::Postgres(server) => postgres::has_tls(server),
        }
    }

    /// Reports whether the store is on a server, which other proxies can also use.
    pub(crate) fn is_shared(&self) -> bool {
        !matches!(self, StoreAddress::File(_))
    }
}

/// An open store.
pub(crate) enum Store {
    /// No store: bindings end with the program.
    Memory,
    /// A file on this host.
    Local(Sqlite),
    /// A server that proxies share.
    Shared(Shared),
}

impl Store {
    /// Opens the store. For a server, connects and reads the server's time.
    ///
    /// # Errors
    /// If the file cannot be used, or the server cannot be reached or refuses the connection.
    pub(crate) fn open(
        address: Option<&StoreAddress>,
        own: Own,
        clock: Clock,
        waker: &Arc<Waker>,
    ) -> Result<Store, SipError> {
        match address {
            None => Ok(Store::Memory),
            Some(StoreAddress::File(path)) => Sqlite::open(path).map(Store::Local),
            Some(address) => Shared::open(address, own, clock, waker.clone()).map(Store::Shared),
        }
    }

    /// Loads the whole store into a proxy that has no bindings yet. `listeners` is the number of the proxy's listeners. Returns the number
    /// of loaded bindings.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub(crate) fn restore(
        &mut self,
        clock: Clock,
        listeners: usize,
        proxy: &mut Proxy,
    ) -> Result<usize, SipError> {
        match self {
            Store::Memory => Ok(0),
            Store::Local(store) => {
                let found = store.load(clock.now(), listeners)?;
                found.iter().for_each(|change| proxy.restore(change));
                Ok(found.len())
            }
            Store::Shared(store) => {
                store.begin(proxy)?;
                Ok(proxy.location().contacts())
            }
        }
    }

    /// Returns the shared store, or `None` if the store is of another kind.
    pub(crate) fn shared(&self) -> Option<&Shared> {
        match self {
            Store::Shared(store) => Some(store),
            Store::Memory | Store::Local(_) => None,
        }
    }
}

/// Wraps a problem of a store, for `map_err`.
fn failed(address: &impl fmt::Display) -> impl FnOnce(String) -> SipError {
    let address = address.to_string();
    move |problem| SipError::Store { address, problem }
}

/// Wraps an SQLite error, for `map_err`.
fn failed_file(path: &Path) -> impl FnOnce(rusqlite::Error) -> SipError {
    let address = path.display().to_string();
    move |source| SipError::Store { address, problem: source.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<StoreAddress, String> {
        StoreAddress::parse(text, Path::new("/nowhere/roots.pem"))
    }

    #[test]
    fn a_store_is_a_file_or_a_url_that_is_shown_without_its_secrets() {
        assert_eq!(parse("/var/x.db"), Ok(StoreAddress::File("/var/x.db".into())));
        for (text, shown) in [
            ("redis://:sesame@192.0.2.1:6379/2", "redis://192.0.2.1:6379/2"),
            ("redis://u:ge@heim@192.0.2.1/", "redis://192.0.2.1/"),
            ("postgres://u:sesame@192.0.2.1/sip?sslmode=disable", "postgres://192.0.2.1/sip"),
            ("redis+unix:///run/redis.sock?pass=sesame", "redis+unix:///run/redis.sock"),
        ] {
            let address = parse(text).unwrap();
            assert_eq!((address.to_string().as_str(), address.is_shared()), (shown, true));
            assert!(!format!("{address:?}").contains("heim"), "{address:?}");
        }
    }

    #[test]
    fn an_invalid_store_is_refused_without_showing_it() {
        for (text, why) in [
            ("", "is empty"),
            ("mysql://u:sesame@h/", "unknown store"),
            ("redis://sesame@:x:y", "is not a Redis URL"),
            ("rediss://:sesame@h/#insecure", "has a `#`"),
            ("postgres://u:sesame@h:x/", "is not a PostgreSQL URL"),
            ("postgres://u:sesame@h/sip?sslmode=prefer", "sslmode must be"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(!error.contains("sesame") && error.contains(why), "{error}");
        }
    }

    #[test]
    fn a_store_url_with_tls_requires_readable_root_certificates() {
        for text in [
            "rediss://:sesame@192.0.2.1/2",
            "postgres://u:sesame@h/sip?sslmode=require",
            "postgresql://u:sesame@h/sip?application_name=x&sslmode=verify-full",
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.starts_with("/nowhere/roots.pem: "), "{error}");
        }
    }
}
