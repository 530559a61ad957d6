//! Statistics of a run, for people and for experiments.

use std::time::Duration;

use base::Time;
use serde_json::{Value, json};
use sip::agent::AgentEvent;

use super::args::UaArgs;
use super::rtp::Receiver;

/// Limit on the recorded times of one kind. Later times are ignored, even in the count.
const TIMES_MAX: usize = 1_000_000;

/// Counts and times of registrations, calls and RTP packets.
#[derive(Debug, Default)]
pub(super) struct Statistics {
    registered: Vec<Duration>,
    not_registered: Vec<u16>,
    /// Outgoing calls begun.
    pub(super) begun: u64,
    answered: Vec<Duration>,
    taken: u64,
    ended: u64,
    /// Start of the first outgoing call, and end of the last call that has ended.
    pub(super) calling: Option<(Time, Time)>,
    /// Calls that have ended, except calls that ended because the program stopped.
    pub(super) completed: u64,
    hung_up: Vec<Duration>,
    failed: u64,
    last_failure: Option<u16>,
    /// Reason why the last failed request got no response; `None` if that request got a response. Reports show this reason instead of the
    /// status, because the program itself generated the status.
    pub(super) silence: Option<String>,
    pub(super) sent: u64,
    pub(super) receiver: Receiver,
}

fn keep(times: &mut Vec<Duration>, time: Duration) {
    if times.len() < TIMES_MAX {
        times.push(time);
    }
}

impl Statistics {
    pub(super) fn note(&mut self, event: &AgentEvent) {
        match *event {
            AgentEvent::Registered { took } => keep(&mut self.registered, took),
            AgentEvent::NotRegistered { status, .. } => self.not_registered.push(status),
            AgentEvent::Answered { is_caller: true, took, .. } => keep(&mut self.answered, took),
            AgentEvent::Answered { is_caller: false, .. } => self.taken += 1,
            AgentEvent::Ended { took, .. } => {
                self.ended += 1;
                if let Some(took) = took {
                    keep(&mut self.hung_up, took);
                }
            }
            AgentEvent::Failed { status, .. } => {
                self.failed += 1;
                self.last_failure = Some(status);
            }
        }
    }

    /// Returns the number of successful registrations.
    pub(super) fn registrations(&self) -> usize {
        self.registered.len()
    }

    pub(super) fn to_json(&self) -> Value {
        json!({
            "registrations": times(&self.registered),
            "registrations_refused": self.not_registered,
            "calls_begun": self.begun,
            "calls_answered": times(&self.answered),
            "calls_taken": self.taken,
            "calls_ended": self.ended,
            "calls_completed": self.completed,
            "calls_per_s": self.calling.map(|(start, end)| self.completed as f64 / end.since(start).as_secs_f64()),
            "calls_hung_up": times(&self.hung_up),
            "calls_failed": self.failed,
            "last_failure": self.last_failure,
            "rtp": {
                "sent": self.sent,
                "received": self.receiver.received,
                "lost": self.receiver.lost(),
                "jitter_ms_max": self.receiver.jitter_ms_max(),
            },
        })
    }

    /// Returns the error text, if a registration or call that the command line requested has failed.
    pub(super) fn verdict(&self, args: &UaArgs) -> Option<String> {
        if !args.no_register && self.registered.is_empty() {
            let refusal =
                self.not_registered.last().map(|status| format!("{} answered {status}", args.proxy));
            let why = self.silence.clone().or(refusal);
            return Some(format!("not registered: {}", why.as_deref().unwrap_or("no answer yet")));
        }
        let wanted = args.call.as_ref().map_or(0, |_| args.calls);
        let answered = self.answered.len() as u64;
        if answered < wanted || self.failed > 0 {
            let status = self.last_failure.map(|status| format!("status {status}"));
            let last =
                self.silence.clone().or(status).map(|why| format!(", the last: {why}")).unwrap_or_default();
            return Some(format!("{answered} of {wanted} calls were answered; {} failed{last}", self.failed));
        }
        None
    }
}

/// Formats the count, the mean, the percentiles and the maximum of durations. The durations are in ms.
pub(super) fn times(times: &[Duration]) -> Value {
    let mut ms: Vec<f64> = times.iter().map(|time| time.as_secs_f64() * 1e3).collect();
    ms.sort_by(f64::total_cmp);
    let first = times.first().map(|time| time.as_secs_f64() * 1e3);
    let mean = (!ms.is_empty()).then(|| ms.iter().sum::<f64>() / ms.len() as f64);
    let at = |part: f64| ms.get(((ms.len() as f64 * part) as usize).min(ms.len().saturating_sub(1))).copied();
    json!({
        "count": ms.len(), "ms_first": first, "ms_mean": mean, "ms_p50": at(0.5), "ms_p90": at(0.9), "ms_p99": at(0.99),
        "ms_max": ms.last(),
    })
}
