//! A redirect server (RFC 3261 section 8.3). The server answers with a user's contacts, and the client sends the request to these
//! contacts itself.
//!
//! The server does not forward requests. It rejects requests to other domains. Begin at [`open_contacts`].

use base::Time;

use super::ProxyConfig;
use super::refusal::CUT_OFF;
use super::routing::is_by_flow;
use crate::fault::Fault;
use crate::header::{Header, Name};
use crate::location::{Binding, Location};
use crate::uri::{Scheme, Uri};

/// Returns the Contact fields of a 302 to a request for `asked`. These fields name the contacts that the client can reach itself.
///
/// # Errors
/// Returns 404 or 480 if the user is not registered. Returns 480 if the client can reach none of the user's contacts itself. For example,
/// a contact with a Path, or a contact behind a NAT, is reachable only through a proxy.
pub(super) fn open_contacts(
    now: Time,
    config: &ProxyConfig,
    location: &Location,
    user: &str,
    asked: &Uri<'_>,
) -> Result<Vec<Header>, Fault> {
    if location.of(user, now).next().is_none() {
        return Err(config.nobody_there(user));
    }
    let open = location.of(user, now).filter(|binding| is_open(config, binding, asked));
    let open: Vec<Header> = open.map(|binding| contact(now, binding)).collect();
    if open.is_empty() { Err(CUT_OFF) } else { Ok(open) }
}

/// Reports whether a client that requests `asked` can reach a contact itself. The contact must not be this proxy ("a redirect server MUST
/// NOT redirect a request to a URI equal to the one in the Request-URI"). If `asked` is a SIPS URI, the contact must also be a SIPS URI
/// (RFC 5630 section 5.4). The contact must need no Path and no flow.
fn is_open(config: &ProxyConfig, binding: &Binding, asked: &Uri<'_>) -> bool {
    let Ok(contact) = Uri::parse(&binding.uri) else { return false };
    let is_secure_enough = asked.scheme != Scheme::Sips || contact.scheme == Scheme::Sips;
    binding.path.is_empty() && !is_by_flow(binding) && !config.is_ours(&contact) && is_secure_enough
}

/// Formats a Contact with its preference and remaining lifetime.
fn contact(now: Time, binding: &Binding) -> Header {
    let (q, left) = (binding.q, binding.expires.since(now).as_secs());
    let rest = format!(">;q={}.{:03};expires={left}", q / 1000, q % 1000);
    Header::of_bytes(Name::Contact, &[b"<", &binding.uri[..], rest.as_bytes()].concat())
}
