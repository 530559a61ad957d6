//! Routing of requests that have a server transaction (RFC 3261 sections 16.5 and 16.6). A request goes to the registrar, to a user's
//! contacts, to the other end of its dialog, or to another domain. A request may have to wait for a DNS answer or for the shared store.
//! Begin with [`Proxy::route`].

use std::time::Duration;

use base::Time;

use super::asked::Asked;
use super::auth::{Proof, forget_credentials};
use super::lookup::{Lookup, ResolvedTarget, UNRESOLVED};
use super::names::Waiting;
use super::outbox::Event;
use super::redirect::open_contacts;
use super::refusal::{CUT_OFF, RELAYING_DENIED, Refusal};
use super::registrar::{Answer, NO_STORE, Registration, Waiter};
use super::shared::{Finding, Wanted};
use super::target::Target;
use super::{Id, Mode, Proxy};
use crate::digest::NONCE_LIFETIME;
use crate::essentials::Essentials;
use crate::fault::Fault;
use crate::header::{Header, Name};
use crate::message::Method;
use crate::uri::Uri;

impl Proxy {
    /// Forwards a request to its targets, or answers it.
    pub(super) fn route(&mut self, now: Time, asked: Asked) -> Result<(), Fault> {
        let uri = Uri::parse(asked.request.request_uri())?;
        let has_route = asked.request.first(Name::Route).is_some();
        if !has_route && self.config.is_ours(&uri) {
            return self.serve(now, asked);
        }
        if self.config.mode == Mode::Redirect {
            return Err(RELAYING_DENIED);
        }
        if asked.leg.is_none() {
            self.config.check_relay(&asked.request, &uri)?;
        }
        let target = match &asked.leg {
            Some(leg) => self.target_within(now, leg, asked.from, &asked.request, &asked.known),
            None => self.routing(now).target_outside(&asked.request),
        };
        if target.as_ref().is_err_and(|fault| *fault == UNRESOLVED) {
            return self.wait_for_name(now, asked);
        }
        self.stateful(now).forward(asked, vec![target?]);
        Ok(())
    }

    /// Serves a request for one of our domains.
    fn serve(&mut self, now: Time, asked: Asked) -> Result<(), Fault> {
        let Asked { server, from, request, known, .. } = &asked;
        let uri = Uri::parse(request.request_uri())?;
        if known.cseq.method == Method::Register {
            let registration = Registration::of(&self.config, *server, *from, request, known)?;
            let answer =
                self.registrar.register(now, &self.config, &self.flows, registration, &mut self.outbox)?;
            self.answer_registration(now, *server, answer);
            return Ok(());
        }
        if uri.user.is_none() {
            return self.answer_for_ourselves(now, *server, known);
        }
        let user = self.config.user_of(&uri);
        let routing = self.routing(now);
        let targets = routing.targets_for(&uri, routing.registered_targets(&user));
        if targets.is_empty() && self.config.is_shared() && !self.is_registered(now, &user) {
            return self.wait_for_record(now, user, asked);
        }
        self.serve_at(now, asked, &user, targets)
    }

    fn is_registered(&self, now: Time, user: &str) -> bool {
        self.registrar.location().of(user, now).next().is_some()
    }

    fn answer_registration(&mut self, now: Time, server: Id, answer: Option<Answer>) {
        if let Some(Answer { status, reason, fields }) = answer {
            self.stateful(now).reply(server, status, reason, fields);
        }
    }

    /// Serves a request for `user`. `targets` is empty if the user cannot be reached.
    fn serve_at(&mut self, now: Time, asked: Asked, user: &str, targets: Vec<Target>) -> Result<(), Fault> {
        if self.config.mode == Mode::Redirect {
            let uri = Uri::parse(asked.request.request_uri())?;
            let contacts = open_contacts(now, &self.config, self.registrar.location(), user, &uri)?;
            self.stateful(now).reply(asked.server, 302, "Moved Temporarily", contacts);
            return Ok(());
        }
        if targets.is_empty() {
            let is_cut_off = self.config.is_shared() && self.is_registered(now, user);
            return Err(if is_cut_off { CUT_OFF } else { self.config.nobody_there(user) });
        }
        self.stateful(now).forward(asked, targets);
        Ok(())
    }

    /// Answers a request to the proxy itself. Only OPTIONS is supported (section 11.2).
    fn answer_for_ourselves(&mut self, now: Time, id: Id, known: &Essentials) -> Result<(), Fault> {
        if known.cseq.method != Method::Options {
            return Err(Fault { status: 404, reason: "No Such User" });
        }
        let fields = vec![
            Header::new(Name::Allow, "INVITE, ACK, CANCEL, BYE, OPTIONS, REGISTER"),
            Header::new(Name::Supported, "path, outbound"),
        ];
        self.stateful(now).reply(id, 200, "OK", fields);
        Ok(())
    }

    /// Queues a request until [`Proxy::handle_resolved`] is called. The next hop of the request is a name that must be looked up.
    fn wait_for_name(&mut self, now: Time, asked: Asked) -> Result<(), Fault> {
        let lookup = self.names.lookup_for(&asked.request)?;
        if asked.known.cseq.method == Method::Invite {
            self.stateful(now).reply(asked.server, 100, "Trying", Vec::new());
        }
        self.names.wait(lookup, Waiting::Request(asked), &mut self.outbox);
        Ok(())
    }

    /// Queues a request until the store has answered. This proxy has no binding of the requested user.
    fn wait_for_record(&mut self, now: Time, user: String, asked: Asked) -> Result<(), Fault> {
        let (server, is_invite) = (asked.server, asked.known.cseq.method == Method::Invite);
        let waiter = Waiter::Request { asked: Box::new(asked), user: user.clone() };
        self.registrar.ask(Wanted::Read { user }, waiter, &mut self.outbox)?;
        if is_invite {
            self.stateful(now).reply(server, 100, "Trying", Vec::new());
        }
        Ok(())
    }

    /// Queues a request with the right password. The store then reports whether any proxy has already accepted the nonce and the
    /// count in `proof`.
    pub(super) fn wait_for_proof(&mut self, asked: Asked, proof: Proof) -> Result<(), Fault> {
        let Proof { nonce, count, is_own } = proof;
        let wanted = Wanted::Use { nonce, count, lifetime: NONCE_LIFETIME };
        self.registrar.ask(wanted, Waiter::Proof { asked: Box::new(asked), is_own }, &mut self.outbox)
    }

    /// Handles the answer to a [`Lookup`]. `targets` contains the addresses in the order of preference. If the name has no address,
    /// `targets` is empty. `good_for` is the answer's lifetime.
    pub fn handle_resolved(
        &mut self,
        now: Time,
        lookup: Lookup,
        targets: Vec<ResolvedTarget>,
        good_for: Duration,
    ) {
        for waiting in self.names.answer(now, &lookup, targets, good_for) {
            match waiting {
                Waiting::Request(asked) => {
                    let server = asked.server;
                    let done =
                        self.stateful(now).check_cancelled(server).and_then(|()| self.route(now, asked));
                    self.stateful(now).refuse_if_failed(server, done);
                }
                Waiting::Ack(ack) => self.route_ack(now, ack),
            }
        }
    }

    /// Handles the store's answer to a [`Query`](super::Query), or the store's failure.
    pub fn handle_found(&mut self, now: Time, ticket: u64, finding: Finding) {
        let Some(waiter) = self.registrar.answered(ticket) else { return };
        if finding == Finding::Failed {
            self.outbox.count(Event::Unanswered);
        }
        let (server, done) = match waiter {
            Waiter::Registration(pending) => {
                let Proxy { config, flows, outbox, .. } = self;
                let server = pending.asked.id();
                let answer = self.registrar.finish(now, config, flows, pending, finding, outbox);
                (server, answer.map(|answer| self.answer_registration(now, server, answer)))
            }
            Waiter::Request { asked, user } => {
                (asked.server, self.finish_request(now, *asked, &user, finding))
            }
            Waiter::Proof { asked, is_own } => {
                (asked.server, self.finish_proof(now, *asked, is_own, &finding))
            }
        };
        self.stateful(now).refuse_if_failed(server, done);
    }

    fn finish_request(&mut self, now: Time, asked: Asked, user: &str, finding: Finding) -> Result<(), Fault> {
        let Finding::Is(record) = finding else { return Err(NO_STORE) };
        self.registrar.learn(user, record.version, &record.bindings);
        self.stateful(now).check_cancelled(asked.server)?;
        let good = record.bindings.iter().filter(|binding| binding.expires > now);
        let routing = self.routing(now);
        let targets = routing.targets_of(good);
        let targets = routing.targets_for(&Uri::parse(asked.request.request_uri())?, targets);
        self.serve_at(now, asked, user, targets)
    }

    /// Completes a request whose nonce the store has checked. If the store has failed, a request with a nonce from this proxy is
    /// accepted, because this proxy has checked the nonce itself. A request with a nonce from another proxy is challenged again. That
    /// other proxy may already have accepted the same answer.
    fn finish_proof(
        &mut self,
        now: Time,
        asked: Asked,
        is_own: bool,
        finding: &Finding,
    ) -> Result<(), Fault> {
        let is_good = match finding {
            Finding::IsFirst(is_first) => *is_first,
            _ => is_own,
        };
        self.stateful(now).check_cancelled(asked.server)?;
        let is_register = asked.known.cseq.method == Method::Register;
        if !is_good {
            let Refusal { fault, fields } =
                self.authenticator.challenge(now, &self.config, is_register, true);
            self.stateful(now).reply(asked.server, fault.status, fault.reason, fields);
            return Ok(());
        }
        let mut request = asked.request;
        forget_credentials(&self.config, &mut request, is_register);
        self.route(now, Asked { request, ..asked })
    }
}
