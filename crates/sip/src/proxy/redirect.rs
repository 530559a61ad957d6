//! A redirect server (RFC 3261 section 8.3): who asks for a user is told where the user is, and asks there himself.
//!
//! Nothing is forwarded, so whatever is not for a user of ours is refused. Begin at [`Proxy::redirect`].

use base::Time;

use super::route::{CUT_OFF, is_by_flow};
use super::{Id, Proxy};
use crate::fault::Fault;
use crate::header::{Header, Name};
use crate::location::Binding;
use crate::uri::{Scheme, Uri};

impl Proxy {
    /// Answers a request for a user with 302 and the places where others can reach him.
    ///
    /// # Errors
    /// 404 or 480 if he is not registered, 480 if all his places are reached by his own connection or a Path alone: those lead through
    /// the registrar, and would lead whoever is told of them nowhere.
    pub(super) fn redirect(&mut self, now: Time, id: Id, user: &str, uri: &Uri<'_>) -> Result<(), Fault> {
        if self.location.of(user, now).next().is_none() {
            return Err(self.nobody_there(user));
        }
        let open = self.location.of(user, now).filter(|binding| self.is_open(binding, uri));
        let open: Vec<Vec<u8>> = open.map(|binding| contact(now, binding)).collect();
        if open.is_empty() {
            return Err(CUT_OFF);
        }
        self.reply(now, id, 302, "Moved Temporarily", |response| {
            for contact in &open {
                response.push(Header::of_bytes(Name::Contact, contact));
            }
        });
        Ok(())
    }

    /// Whether whoever asks for `asked` can reach a place himself. It is not ourselves ("a redirect server MUST NOT redirect a request to
    /// a URI equal to the one in the Request-URI"), and for a SIPS URI it is one, too (RFC 5630 section 5.4).
    fn is_open(&self, binding: &Binding, asked: &Uri<'_>) -> bool {
        let Ok(contact) = Uri::parse(&binding.uri) else { return false };
        let is_secure_enough = asked.scheme != Scheme::Sips || contact.scheme == Scheme::Sips;
        binding.path.is_empty() && !is_by_flow(binding) && !self.is_ours(&contact) && is_secure_enough
    }
}

/// With how much it is preferred, and for how long it is known.
fn contact(now: Time, binding: &Binding) -> Vec<u8> {
    let (q, left) = (binding.q, binding.expires.since(now).as_secs());
    let rest = format!(">;q={}.{:03};expires={left}", q / 1000, q % 1000);
    [b"<", &binding.uri[..], rest.as_bytes()].concat()
}
