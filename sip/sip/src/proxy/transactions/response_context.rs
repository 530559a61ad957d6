//! The response context of a request (RFC 3261 section 16.7): its branches, the targets that are not yet tried, and the best response so
//! far.

use crate::fault::Fault;
use crate::header::{Header, Name};
use crate::message::{Message, Start};
use crate::proxy::Id;
use crate::proxy::memory_budget::weight;
use crate::proxy::plan::Plan;
use crate::proxy::tokens::FLOW_FAILED;
use bytes::Bytes;

/// Outcome of a request after all its branches have ended.
#[derive(Debug)]
pub(in crate::proxy) enum Conclusion {
    /// The request gets no response, because its client has already given up.
    Silence,
    /// The request gets this response. The caller removes the first Via before sending.
    Response(Message),
}

/// The state of a forwarded request.
#[derive(Debug, Default)]
pub(in crate::proxy) struct ResponseContext {
    /// Numbers of all branches, including ended ones.
    branches: Vec<Id>,
    /// Number of branches without a final response.
    open: usize,
    /// Targets that are not yet tried.
    plan: Option<Box<Plan>>,
    /// Best final response so far, which was not forwarded yet.
    best: Option<Message>,
    /// True if CANCEL has arrived.
    is_cancelled: bool,
    /// True if a branch was not sent because the queue of its next hop was full.
    is_congested: bool,
    /// True if another proxy directed the request to one of our flows.
    is_by_flow: bool,
}

impl ResponseContext {
    pub(super) fn begin_branch(&mut self, id: Id) {
        self.branches.push(id);
        self.open += 1;
    }

    /// Records the end of a branch.
    pub(in crate::proxy) fn close_branch(&mut self) {
        self.open = self.open.saturating_sub(1);
    }

    /// Reports whether a branch has no final response.
    pub(in crate::proxy) fn is_open(&self) -> bool {
        self.open > 0
    }

    /// Returns all branches, including ended ones, and drops the targets that are not yet tried.
    pub(in crate::proxy) fn give_up(&mut self) -> Vec<Id> {
        self.plan = None;
        self.branches.clone()
    }

    /// Keeps the targets that are not yet tried.
    pub(in crate::proxy) fn keep_plan(&mut self, plan: Box<Plan>) {
        self.plan = Some(plan);
    }

    pub(in crate::proxy) fn take_plan(&mut self) -> Option<Box<Plan>> {
        self.plan.take()
    }

    /// Takes the plan if it has further groups of targets.
    pub(in crate::proxy) fn take_plan_with_more(&mut self) -> Option<Box<Plan>> {
        self.plan.take_if(|plan| plan.has_more())
    }

    /// Records that CANCEL has arrived.
    pub(in crate::proxy) fn cancel(&mut self) {
        self.is_cancelled = true;
    }

    pub(in crate::proxy) fn is_cancelled(&self) -> bool {
        self.is_cancelled
    }

    /// Records that a branch was not sent because the queue of its next hop was full.
    pub(in crate::proxy) fn note_congestion(&mut self) {
        self.is_congested = true;
    }

    /// Records that another proxy directed the request to one of our flows.
    pub(in crate::proxy) fn note_flow(&mut self) {
        self.is_by_flow = true;
    }

    /// Drops everything that is not needed after a final response.
    pub(super) fn finish(&mut self) {
        self.best = None;
        self.plan = None;
    }

    /// Returns the number of bytes that the context keeps.
    pub(super) fn weight(&self) -> usize {
        self.best.as_ref().map_or(0, weight)
    }

    /// Keeps the best response so far (step 6). Challenges of all branches are combined (step 7).
    pub(super) fn note_response(&mut self, mut response: Message) {
        let Some(best) = self.best.take() else {
            self.best = Some(response);
            return;
        };
        let is_better = rank(response.status()) < rank(best.status());
        let (mut kept, other) = if is_better {
            (response, best)
        } else {
            (best, {
                response.body.clear();
                response
            })
        };
        if matches!(kept.status(), 401 | 407) {
            let names = [Name::WwwAuthenticate, Name::ProxyAuthenticate];
            let challenges = other.headers.into_iter().filter(|header| names.contains(&header.name));
            kept.headers.extend(challenges);
        }
        self.best = Some(kept);
    }

    /// Reports whether the best response means that the request reached no user agent. After congestion, the result is false, because the
    /// sender gets Retry-After and may send the request again.
    pub(in crate::proxy) fn reached_nobody(&self) -> bool {
        let best = self.best.as_ref().filter(|_| !self.is_congested);
        best.is_some_and(|best| matches!(best.status(), 408 | 430 | 503))
    }

    /// Returns the response to send once no branch is open. `retry_after` is in seconds.
    pub(in crate::proxy) fn conclude(&mut self, is_invite: bool, retry_after: u32) -> Option<Conclusion> {
        let mut best = self.best.take()?;
        let best = match best.status() {
            // "MUST NOT send a 408 … to a non-INVITE" (RFC 4320 section 4.1). The client has also given up when our time-out fires.
            408 if !is_invite => return Some(Conclusion::Silence),
            503 if self.is_congested => {
                best.set(Header::new(Name::RetryAfter, &retry_after.to_string()));
                best
            }
            503 if self.is_by_flow => with_status(best, FLOW_FAILED),
            // Step 6: a forwarded 503 would tell the sender that this proxy is overloaded.
            503 => {
                best.remove(Name::RetryAfter);
                with_status(best, Fault { status: 500, reason: "Next Hop Unavailable" })
            }
            // 430 is a status between proxies, and must not reach the caller (RFC 5626 section 11.5 defines it for edge proxies and
            // registrars).
            430 => with_status(best, Fault { status: 480, reason: "Flow Is Gone" }),
            _ => best,
        };
        Some(Conclusion::Response(best))
    }
}

fn with_status(response: Message, Fault { status, reason }: Fault) -> Message {
    let reason = Bytes::from_static(reason.as_bytes());
    Message { start: Start::Response { status, reason }, ..response }
}

/// Returns the rank of a status. A lower rank is better (step 6). 6xx has the lowest rank. The other classes follow in numerical order.
/// Within 4xx, statuses that help the client to retry come first. Within 5xx, 503 comes last.
fn rank(status: u16) -> u16 {
    match status {
        600.. => 0,
        401 | 407 | 415 | 420 | 484 => 400,
        400..=499 => 401,
        503 => 599,
        _ => status / 100 * 100,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::testing::request;

    fn response(status: u16) -> Message {
        request("INVITE sip:a@example.org").response(status, "x", "tag")
    }

    fn context(statuses: &[u16]) -> ResponseContext {
        let mut context = ResponseContext::default();
        statuses.iter().for_each(|status| context.note_response(response(*status)));
        context
    }

    fn concluded(mut context: ResponseContext, is_invite: bool) -> Option<u16> {
        match context.conclude(is_invite, 5)? {
            Conclusion::Silence => Some(0),
            Conclusion::Response(response) => Some(response.status()),
        }
    }

    #[test]
    fn the_best_response_is_6xx_then_the_lowest_class_then_the_most_useful_status() {
        let best = |statuses| concluded(context(statuses), true);
        assert_eq!(best(&[486, 603, 302]), Some(603));
        assert_eq!(best(&[500, 486, 302]), Some(302));
        assert_eq!(best(&[404, 486]), Some(404));
        assert_eq!(best(&[404, 484]), Some(484));
        assert_eq!(best(&[503, 504]), Some(504));
        assert_eq!(best(&[]), None);
    }

    #[test]
    fn challenges_of_all_branches_are_combined() {
        let challenge = |name| {
            let mut response = response(407);
            response.push(Header::new(name, "Digest realm=\"x\""));
            response
        };
        let mut context = ResponseContext::default();
        context.note_response(challenge(Name::ProxyAuthenticate));
        context.note_response(challenge(Name::WwwAuthenticate));
        let Some(Conclusion::Response(best)) = context.conclude(true, 5) else { panic!("no response") };
        assert!(best.first(Name::ProxyAuthenticate).is_some() && best.first(Name::WwwAuthenticate).is_some());
    }

    #[test]
    fn a_503_becomes_500_or_430_for_a_flow_and_a_430_becomes_480() {
        assert_eq!(concluded(context(&[503]), true), Some(500));
        assert_eq!(concluded(context(&[430]), true), Some(480));
        let mut by_flow = context(&[503]);
        by_flow.note_flow();
        assert_eq!(concluded(by_flow, true), Some(430));
    }

    #[test]
    fn congestion_gives_the_sender_503_with_retry_after() {
        let mut context = context(&[503]);
        assert!(context.reached_nobody());
        context.note_congestion();
        assert!(!context.reached_nobody());
        let Some(Conclusion::Response(best)) = context.conclude(true, 5) else { panic!("no response") };
        assert_eq!(
            (best.status(), best.first(Name::RetryAfter).map(|value| &value[..])),
            (503, Some(&b"5"[..]))
        );
    }

    #[test]
    fn a_timeout_gives_408_to_invite_and_no_response_to_other_requests() {
        assert_eq!(concluded(context(&[408]), true), Some(408));
        assert_eq!(concluded(context(&[408]), false), Some(0));
    }
}
