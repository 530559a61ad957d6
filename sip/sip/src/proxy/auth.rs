//! Authentication of requests (RFC 3261 section 22): REGISTER with Authorization, other requests with Proxy-Authorization.
//!
//! The proxy challenges a request outside of dialogs if From names one of our users. For a REGISTER, To takes the place of From. The
//! credentials must have the name of that user, and must be for the request's target. RFC 7616 section 3.4.6: "the server MUST assure
//! that the resource designated by the "uri" parameter is the same as the resource specified in the Request-Line".
//!
//! Without this check, a callee could pass our challenge on to a caller as the callee's own challenge. The callee could then use the
//! caller's answer for a call to another user. RFC 3261 section 22.4 (8) lets a server accept other URIs, because proxies may change the
//! Request-URI. [`is_same_target`] defines the differences that we permit. CANCEL and ACK are never challenged.

use base::Time;

use super::refusal::Refusal;
use super::{Authentication, ProxyConfig};
use crate::address::Address;
use crate::digest::{Credentials, FORBIDDEN, Nonce, Nonces, OTHER_URI};
use crate::essentials::Essentials;
use crate::fault::Fault;
use crate::header::{Header, Name};
use crate::message::{Message, Method};
use crate::uri::{Uri, is_same_target};

/// The identity of a correct answer to a challenge. All proxies together accept each answer only once.
#[derive(Debug)]
pub(crate) struct Proof {
    /// Time and number of the challenge's nonce, in hexadecimal.
    pub(crate) nonce: String,
    /// Nonce count of the answer: the number of requests for which the client has used the nonce, including this request.
    pub(crate) count: u32,
    /// True if this proxy issued the challenge.
    pub(crate) is_own: bool,
}

/// The result of authentication.
#[derive(Debug)]
pub(super) enum Verdict {
    /// The request may continue.
    Passed,
    /// The request may continue only if no proxy has accepted this answer before. The shared store decides.
    Unless(Proof),
}

/// The component that checks credentials and issues challenges.
#[derive(Debug)]
pub(super) struct Authenticator {
    nonces: Nonces,
}

impl Authenticator {
    pub(super) fn new(nonces: Nonces) -> Authenticator {
        Authenticator { nonces }
    }

    /// Decides whether a request may continue. A rejected request leaves no state, except the record of a nonce that it used with the right
    /// password. `asked_for` is the Request-URI as received. If the previous hop was a strict router, the current Request-URI differs from
    /// `asked_for`.
    pub(super) fn authenticate(
        &mut self,
        now: Time,
        config: &ProxyConfig,
        request: &mut Message,
        known: &Essentials,
        asked_for: &[u8],
        is_in_dialog: bool,
    ) -> Result<Verdict, Refusal> {
        let is_register = known.cseq.method == Method::Register;
        if config.authentication.is_none() || is_in_dialog {
            return Ok(Verdict::Passed);
        }
        let claimed = if is_register { Name::To } else { Name::From };
        let value = request.first(claimed).ok_or(Fault::bad("Missing Address"))?.clone();
        let uri = Uri::parse(Address::parse(&value)?.uri)?;
        if !config.is_ours(&uri) {
            return Ok(Verdict::Passed);
        }
        match self.check(now, config, request, known, asked_for)? {
            Check::By(name, proof) if config.user_of(&uri).split('@').next() == Some(&name) => match proof {
                Some(proof) => Ok(Verdict::Unless(proof)),
                None => {
                    forget_credentials(config, request, is_register);
                    Ok(Verdict::Passed)
                }
            },
            Check::By(..) => Err(FORBIDDEN.into()),
            Check::Not { is_stale } => Err(self.challenge(now, config, is_register, is_stale)),
        }
    }

    fn check(
        &mut self,
        now: Time,
        config: &ProxyConfig,
        request: &Message,
        known: &Essentials,
        asked_for: &[u8],
    ) -> Result<Check, Fault> {
        let is_register = known.cseq.method == Method::Register;
        let field = if is_register { Name::Authorization } else { Name::ProxyAuthorization };
        let Some(authentication) = &config.authentication else {
            return Ok(Check::Not { is_stale: false });
        };
        let mut is_stale = false;
        for header in request.all(field) {
            let Some(credentials) = Credentials::parse(&header.value) else { continue };
            let is_asked_for = authentication.algorithms.contains(&credentials.algorithm());
            if credentials.realm != authentication.realm.as_bytes() || !is_asked_for {
                continue;
            }
            let is_for = |target| is_same_target(credentials.uri(), target, |uri| config.is_ours(uri));
            let is_for_this = is_for(asked_for)? || is_for(request.request_uri())?;
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
                if !is_for_this {
                    return Err(OTHER_URI);
                }
                let proof = config.shared.and_then(|_| self.nonces.proof(&credentials));
                return Ok(Check::By(name, proof));
            }
            is_stale = true;
        }
        Ok(Check::Not { is_stale })
    }

    /// Returns a rejection that demands credentials.
    pub(super) fn challenge(
        &mut self,
        now: Time,
        config: &ProxyConfig,
        is_register: bool,
        is_stale: bool,
    ) -> Refusal {
        let (name, status, reason) = match is_register {
            true => (Name::WwwAuthenticate, 401, "Unauthorized"),
            false => (Name::ProxyAuthenticate, 407, "Proxy Authentication Required"),
        };
        let nonces = &mut self.nonces;
        let mut field = |authentication: &Authentication, algorithm| {
            Header::new(name, &nonces.challenge(now, &authentication.realm, algorithm, is_stale))
        };
        let fields = config.authentication.iter().flat_map(|authentication| {
            authentication.algorithms.iter().map(|&a| field(authentication, a)).collect::<Vec<_>>()
        });
        let fields = fields.collect();
        Refusal { fault: Fault { status, reason }, fields }
    }
}

/// Removes the credentials for our realm from a request before it is forwarded.
pub(super) fn forget_credentials(config: &ProxyConfig, request: &mut Message, is_register: bool) {
    if is_register {
        return;
    }
    let realm = config.authentication.as_ref().map(|a| a.realm.as_bytes()).unwrap_or_default();
    request.headers.retain(|header| {
        header.name != Name::ProxyAuthorization
            || Credentials::parse(&header.value).is_none_or(|credentials| credentials.realm != realm)
    });
}

/// The result of checking a request's credentials.
enum Check {
    /// The request is from this user. The proof is present if proxies share users, because the other proxies must then reject a replay.
    By(String, Option<Proof>),
    Not {
        is_stale: bool,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::testing::{config, request};

    const URI: &[u8] = b"sip:b@example.org";

    fn with_users() -> ProxyConfig {
        let authentication = Authentication {
            realm: "example.org".into(),
            passwords: [("caller".to_owned(), "secret".to_owned())].into(),
            algorithms: vec![crate::digest::Algorithm::Md5, crate::digest::Algorithm::Sha256],
        };
        ProxyConfig { authentication: Some(authentication), ..config() }
    }

    fn judged(config: &ProxyConfig, text: &str, is_in_dialog: bool) -> Result<Verdict, Refusal> {
        let mut request = request(text);
        let known = Essentials::of(&request).unwrap();
        let mut judge = Authenticator::new(Nonces::new([1; 32]));
        judge.authenticate(Time::ZERO, config, &mut request, &known, URI, is_in_dialog)
    }

    fn challenges(judged: Result<Verdict, Refusal>) -> (u16, usize) {
        let refusal = judged.unwrap_err();
        (refusal.fault.status, refusal.fields.len())
    }

    #[test]
    fn a_401_or_407_has_one_challenge_for_each_algorithm() {
        let config = with_users();
        assert_eq!(challenges(judged(&config, "OPTIONS sip:b@example.org", false)), (407, 2));
        assert_eq!(challenges(judged(&config, "REGISTER sip:example.org", false)), (401, 2));
    }

    #[test]
    fn requests_pass_within_a_dialog_or_if_no_passwords_are_configured() {
        let text = "OPTIONS sip:b@example.org";
        assert!(matches!(judged(&with_users(), text, true), Ok(Verdict::Passed)));
        assert!(matches!(judged(&config(), text, false), Ok(Verdict::Passed)));
    }

    #[test]
    fn only_credentials_for_our_realm_are_removed() {
        let field = |realm| {
            format!(
                "Proxy-Authorization: Digest username=\"a\",realm=\"{realm}\",nonce=\"n\",uri=\"sip:b\",response=\"00\""
            )
        };
        let text = format!("OPTIONS sip:b@example.org\n{}\n{}", field("example.org"), field("example.com"));
        let mut request = request(&text);
        forget_credentials(&with_users(), &mut request, false);
        let left: Vec<_> = request.all(Name::ProxyAuthorization).collect();
        assert!(left.len() == 1 && left[0].value.windows(11).any(|part| part == b"example.com"), "{left:?}");
    }
}
