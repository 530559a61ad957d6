//! Who a request is from (RFC 3261 section 22): REGISTER by Authorization, others by Proxy-Authorization.
//!
//! Asked are those who say they are our users, outside of dialogs. The user's name must be that of the address they use.

use base::Time;

use super::{Id, Proxy};
use crate::address::Address;
use crate::digest::{Algorithm, Credentials, FORBIDDEN, Nonce};
use crate::essentials::Essentials;
use crate::fault::Fault;
use crate::header::{Header, Name};
use crate::message::{Message, Method};
use crate::uri::Uri;

impl Proxy {
    /// Whether the request may go on; if not, it was answered with a challenge.
    pub(super) fn authenticate(
        &mut self,
        now: Time,
        id: Id,
        request: &mut Message,
        known: &Essentials,
        is_in_dialog: bool,
    ) -> Result<bool, Fault> {
        let is_register = known.cseq.method == Method::Register;
        if self.config.authentication.is_none() || is_in_dialog {
            return Ok(true);
        }
        let claimed = if is_register { Name::To } else { Name::From };
        let value = request.first(claimed).ok_or(Fault::bad("Address Is Missing"))?.clone();
        let uri = Uri::parse(Address::parse(&value)?.uri)?;
        if !self.is_ours(&uri) {
            return Ok(true);
        }
        let (status, reason) =
            if is_register { (401, "Unauthorized") } else { (407, "Proxy Authentication Required") };
        match self.check(now, request, known, is_register) {
            Check::By(name) if self.user_of(&uri).split('@').next() == Some(&name) => {
                self.forget_credentials(request, is_register);
                Ok(true)
            }
            Check::By(_) => Err(FORBIDDEN),
            Check::Not { is_stale } => {
                self.challenge(now, id, status, reason, is_register, is_stale);
                Ok(false)
            }
        }
    }

    fn check(&mut self, now: Time, request: &Message, known: &Essentials, is_register: bool) -> Check {
        let field = if is_register { Name::Authorization } else { Name::ProxyAuthorization };
        let Some(authentication) = &self.config.authentication else { return Check::Not { is_stale: false } };
        let mut is_stale = false;
        for header in request.all(field) {
            let Some(credentials) = Credentials::parse(&header.value) else { continue };
            let is_asked_for = authentication.algorithms.contains(&credentials.algorithm());
            if credentials.realm != authentication.realm.as_bytes() || !is_asked_for {
                continue;
            }
            let nonce = self.nonces.judge(now, &credentials);
            let name = String::from_utf8_lossy(credentials.username).into_owned();
            let Some(password) = authentication.passwords.get(&name) else { continue };
            if nonce == Nonce::Foreign
                || !credentials.is_by(password.as_bytes(), known.cseq.method.as_bytes())
            {
                continue;
            }
            if nonce == Nonce::Good {
                self.nonces.use_up(now, &credentials);
                return Check::By(name);
            }
            is_stale = true;
        }
        Check::Not { is_stale }
    }

    fn challenge(&mut self, now: Time, id: Id, status: u16, reason: &str, is_register: bool, is_stale: bool) {
        let field = if is_register { Name::WwwAuthenticate } else { Name::ProxyAuthenticate };
        let Some(authentication) = &self.config.authentication else { return };
        let nonces = &mut self.nonces;
        let challenge = |a: &Algorithm| nonces.challenge(now, &authentication.realm, *a, is_stale);
        let values: Vec<_> = authentication.algorithms.iter().map(challenge).collect();
        self.reply(now, id, status, reason, |response| {
            values.iter().for_each(|value| response.push(Header::new(field, value)));
        });
    }

    /// What was for us is not for the next hop.
    fn forget_credentials(&self, request: &mut Message, is_register: bool) {
        if is_register {
            return;
        }
        let realm = self.config.authentication.as_ref().map(|a| a.realm.as_bytes()).unwrap_or_default();
        request.headers.retain(|header| {
            header.name != Name::ProxyAuthorization
                || Credentials::parse(&header.value).is_none_or(|credentials| credentials.realm != realm)
        });
    }
}

/// What came of a request's credentials.
enum Check {
    By(String),
    Not { is_stale: bool },
}
