//! One end of a link: an interface, perhaps in another network namespace. Begin at [`LinkEnd::open`].

use std::fmt;
use std::fs::File;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use netio::FrameSocket;
use nix::net::if_::if_nametoindex;
use nix::sched::{CloneFlags, setns};
use serde::{Deserialize, Serialize};

use crate::error::BridgeError;

/// Directory of the namespaces of `ip netns add`.
const NAMESPACES: &str = "/run/netns";

/// An end of a link: an interface at which frames arrive. It is written as `INTERFACE` or `NAMESPACE:INTERFACE`. A namespace that contains
/// `/` is a path. Any other namespace is a name of `ip netns`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct LinkEnd {
    namespace: Option<String>,
    /// The interface's name.
    pub interface: String,
}

impl fmt::Display for LinkEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{namespace}:{}", self.interface),
            None => f.write_str(&self.interface),
        }
    }
}

impl FromStr for LinkEnd {
    type Err = BridgeError;

    fn from_str(text: &str) -> Result<LinkEnd, BridgeError> {
        let (namespace, interface) = match text.rsplit_once(':') {
            Some((namespace, interface)) => (Some(namespace.to_owned()), interface),
            None => (None, text),
        };
        let is_name = !interface.is_empty() && interface.len() < 16 && !interface.contains(['/', ' ']);
        if !is_name || namespace.as_ref().is_some_and(String::is_empty) {
            return Err(BridgeError::LinkEnd { text: text.to_owned() });
        }
        Ok(LinkEnd { namespace, interface: interface.to_owned() })
    }
}

impl TryFrom<String> for LinkEnd {
    type Error = BridgeError;

    fn try_from(text: String) -> Result<LinkEnd, BridgeError> {
        text.parse()
    }
}

impl From<LinkEnd> for String {
    fn from(end: LinkEnd) -> String {
        end.to_string()
    }
}

impl LinkEnd {
    /// Returns the file of the namespace, or `None` for the caller's namespace.
    fn path(&self) -> Option<PathBuf> {
        let namespace = self.namespace.as_ref()?;
        Some(if namespace.contains('/') { namespace.into() } else { Path::new(NAMESPACES).join(namespace) })
    }

    /// Claims the interface for this link and opens its sockets. A separate thread performs both steps in the interface's namespace.
    ///
    /// # Errors
    /// Returns an error in these cases:
    ///
    /// - The namespace or the interface does not exist.
    /// - The interface is down, or is an end of another link.
    /// - The caller lacks CAP_NET_RAW or, for another namespace, CAP_SYS_ADMIN.
    pub fn open(&self) -> Result<(FrameSocket, Claim), BridgeError> {
        self.inside(|| {
            let index = self.index()?;
            let claim = self.claim(index)?;
            Ok((self.socket(index)?, claim))
        })
    }

    /// Opens the interface's sockets without a claim, for a program that only listens. The interface may be an end of another program's
    /// link.
    ///
    /// # Errors
    /// Returns the errors of [`open`](Self::open), except [`BridgeError::Taken`].
    pub fn listen(&self) -> Result<FrameSocket, BridgeError> {
        self.inside(|| self.socket(self.index()?))
    }

    /// Runs `work` in the namespace, in a separate thread. The calling thread thus keeps its namespace.
    fn inside<T: Send>(
        &self,
        work: impl FnOnce() -> Result<T, BridgeError> + Send,
    ) -> Result<T, BridgeError> {
        let work = || {
            self.enter()?;
            work()
        };
        let opening = std::thread::scope(|scope| scope.spawn(work).join());
        opening.unwrap_or_else(|_| {
            Err(BridgeError::System { what: "open an interface", source: io::ErrorKind::Other.into() })
        })
    }

    fn enter(&self) -> Result<(), BridgeError> {
        let Some(path) = self.path() else { return Ok(()) };
        let fail = |source: io::Error| BridgeError::Namespace { path: path.clone(), source };
        let file = File::open(&path).map_err(fail)?;
        setns(file, CloneFlags::CLONE_NEWNET).map_err(|e| fail(e.into()))
    }

    fn fail(&self, hint: &'static str) -> impl FnOnce(io::Error) -> BridgeError {
        let end = self.to_string();
        move |source| BridgeError::Interface { end, source, hint }
    }

    fn index(&self) -> Result<u32, BridgeError> {
        if_nametoindex(self.interface.as_str()).map_err(|e| self.fail("`ip link` lists them")(e.into()))
    }

    fn socket(&self, index: u32) -> Result<FrameSocket, BridgeError> {
        let socket = FrameSocket::open(index).map_err(self.fail("it requires root (CAP_NET_RAW)"))?;
        match socket.is_up() {
            Ok(true) => Ok(socket),
            Ok(false) => Err(BridgeError::Down { end: self.to_string() }),
            Err(source) => Err(self.fail("it was removed")(source)),
        }
    }

    /// Claims the interface for one link, in the calling thread's network namespace. Without claims, two links on one interface would both
    /// forward every frame.
    fn claim(&self, index: u32) -> Result<Claim, BridgeError> {
        let claim = SocketAddr::from_abstract_name(format!("linkemu/{index}"))
            .and_then(|address| UnixDatagram::bind_addr(&address));
        claim.map(|socket| Claim { _socket: socket }).map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => BridgeError::Taken { end: self.to_string() },
            _ => BridgeError::System { what: "lock an interface for this program", source: error },
        })
    }
}

/// Claim that reserves an interface for one link. It is a socket with an abstract name, which is unique in the interface's network
/// namespace. The kernel frees the name when the process ends, even after a crash.
#[derive(Debug)]
pub struct Claim {
    _socket: UnixDatagram,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_an_interface_or_one_in_a_namespace() {
        for (text, path) in [
            ("eth0", None),
            ("red:eth0", Some("/run/netns/red")),
            ("/proc/7/ns/net:eth0", Some("/proc/7/ns/net")),
        ] {
            let end: LinkEnd = text.parse().unwrap();
            assert_eq!((end.interface.as_str(), end.path()), ("eth0", path.map(PathBuf::from)), "{text}");
            assert_eq!(end.to_string(), text);
        }
        for text in ["", ":eth0", "red:", "an-interface-name-too-long", "a/b"] {
            assert!(text.parse::<LinkEnd>().is_err(), "{text}");
        }
    }
}
