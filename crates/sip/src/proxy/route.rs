//! Request routing (RFC 3261 sections 16.4 to 16.6): Routes, registered contacts, other domains.

use base::Time;

use super::dialogs::Leg;
use super::names::UNRESOLVED;
use super::target::Target;
use super::{Id, Mode, Proxy};
use crate::essentials::Essentials;
use crate::fault::Fault;
use crate::header::{Header, Name};
use crate::message::{Message, Method};
use crate::transport::Hop;
use crate::uri::Uri;

/// The rejection of a request that concerns neither our users nor our dialogs.
pub(super) const RELAYING_DENIED: Fault = Fault { status: 403, reason: "Relaying Denied" };

/// A request to forward, with the facts found about it so far.
#[derive(Debug)]
pub(super) struct Asked {
    /// Its server transaction.
    pub(super) server: Id,
    pub(super) from: Hop,
    pub(super) request: Message,
    pub(super) known: Essentials,
    /// The dialog for which one of our own Routes was marked.
    pub(super) leg: Option<Leg>,
    /// The loop mark for the branches of its copies: seen again here, it reveals a loop.
    pub(super) mark: String,
}

impl Proxy {
    /// Finds the targets and forwards, or answers.
    pub(super) fn route(&mut self, now: Time, asked: Asked) -> Result<(), Fault> {
        let uri = Uri::parse(asked.request.request_uri())?;
        let has_route = asked.request.first(Name::Route).is_some();
        if !has_route && self.config.is_ours(&uri) {
            return self.serve(now, asked);
        }
        if self.config.mode == Mode::Redirect {
            return Err(RELAYING_DENIED);
        }
        if asked.leg.is_none() && !self.config.may_relay(&asked.request, &uri) {
            return Err(RELAYING_DENIED);
        }
        let target = match &asked.leg {
            Some(leg) => self.target_within(now, leg, asked.from, &asked.request, &asked.known),
            None => self.routing(now).target_outside(&asked.request),
        };
        if target.as_ref().is_err_and(|fault| *fault == UNRESOLVED) {
            return self.wait_for_name(now, asked);
        }
        self.begin(now, asked, vec![target?]);
        Ok(())
    }

    /// Serves a request for this domain.
    fn serve(&mut self, now: Time, asked: Asked) -> Result<(), Fault> {
        let Asked { server, from, request, known, .. } = &asked;
        let uri = Uri::parse(request.request_uri())?;
        if known.cseq.method == Method::Register {
            return self.register(now, *server, *from, request, known);
        }
        if uri.user.is_none() {
            return self.answer_for_ourselves(now, *server, known);
        }
        let user = self.config.user_of(&uri);
        let routing = self.routing(now);
        let targets = routing.targets_for(&uri, routing.registered_targets(&user));
        if targets.is_empty() && self.config.is_shared() && self.location.of(&user, now).next().is_none() {
            return self.wait_for_record(now, user, asked);
        }
        self.serve_at(now, asked, &user, targets)
    }

    /// Serves a request for a user with these targets.
    pub(super) fn serve_at(
        &mut self,
        now: Time,
        asked: Asked,
        user: &str,
        targets: Vec<Target>,
    ) -> Result<(), Fault> {
        if self.config.mode == Mode::Redirect {
            let uri = Uri::parse(asked.request.request_uri())?;
            return self.redirect(now, asked.server, user, &uri);
        }
        if targets.is_empty() {
            let is_cut_off = self.config.is_shared() && self.location.of(user, now).next().is_some();
            return Err(if is_cut_off { CUT_OFF } else { self.config.nobody_there(user) });
        }
        self.begin(now, asked, targets);
        Ok(())
    }

    /// Forwards to a flow of ours that another proxy found; that proxy has authenticated the caller where required.
    pub(super) fn follow_flow(&mut self, now: Time, asked: Asked, flow: Hop) {
        if let Some(server) = self.servers.get_mut(&asked.server) {
            server.is_by_flow = true;
        }
        let target = Target::by_flow(asked.request.request_uri(), flow);
        self.begin(now, asked, vec![target]);
    }

    /// Answers requests to the proxy itself: only OPTIONS (section 11.2).
    fn answer_for_ourselves(&mut self, now: Time, id: Id, known: &Essentials) -> Result<(), Fault> {
        if known.cseq.method != Method::Options {
            return Err(Fault { status: 404, reason: "Nobody Of That Name" });
        }
        self.reply(now, id, 200, "OK", |response| {
            response.push(Header::new(Name::Allow, "INVITE, ACK, CANCEL, BYE, OPTIONS, REGISTER"));
            response.push(Header::new(Name::Supported, "path, outbound"));
        });
        Ok(())
    }

    /// Forwards the request, after a 100 to INVITE.
    fn begin(&mut self, now: Time, asked: Asked, targets: Vec<Target>) {
        // One that waited for a name has sent its 100 already.
        let is_told = self.servers.get(&asked.server).is_some_and(|server| server.last.is_some());
        if asked.known.cseq.method == Method::Invite && !is_told {
            self.reply(now, asked.server, 100, "Trying", |_| {});
        }
        self.forward(now, asked, targets);
    }
}

/// The user is registered, but all ways there are gone or unsuitable.
pub(super) const CUT_OFF: Fault = Fault { status: 480, reason: "No Way To The User" };
