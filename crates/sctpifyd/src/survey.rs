//! Answers that cover every connection: gathered one slice per turn, because packets wait during a turn.
//!
//! A report does not show a single instant: a connection that ends while it is gathered may be in it or not.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::mpsc::Sender;
use std::time::Duration;

use control::{Association, Connection, LimitedBy, Listener, PathsReport, Response, Role};
use relay::Peer;
use sctp::AssociationId;

use crate::connection::{Connection as Known, ConnectionId, Stage};
use crate::listeners::Listed;
use crate::manual::Socket;
use crate::shard::Shard;

/// Time that packets may wait for a slice.
const SLICE: Duration = Duration::from_micros(200);
/// Items between two readings of the clock.
const STRIDE: usize = 16;

/// A question.
#[derive(Clone, Debug)]
pub(crate) enum Question {
    /// The status, with these TCP listeners of the host.
    Status(Vec<Listed>),
    Paths,
    /// The treatment of connections to this destination.
    Explain(SocketAddr),
}

/// Reports that are being gathered, oldest request first.
#[derive(Default)]
pub(crate) struct Surveys(VecDeque<Survey>);

struct Survey {
    question: Question,
    reply: Sender<Response>,
    next: Next,
    found: Found,
}

/// The next part to look at.
enum Next {
    /// The connections after this one.
    After(ConnectionId),
    /// The last one of these shared associations.
    Shared(Vec<AssociationId>),
    /// The last one of these listeners.
    Listeners(Vec<(SocketAddr, Vec<Socket>)>),
    /// Nothing more.
    Done,
}

/// The findings.
#[derive(Default)]
pub(crate) struct Found {
    pub(crate) connections: Vec<Connection>,
    pub(crate) associations: Vec<Association>,
    pub(crate) listeners: Vec<Listener>,
    pub(crate) live: Live,
}

/// Connections of local programs to the destination that is explained.
#[derive(Default)]
pub(crate) struct Live {
    pub(crate) count: usize,
    /// Number of connections by limit.
    pub(crate) limited_by: BTreeMap<LimitedBy, usize>,
    /// Octets that wait on their associations.
    pub(crate) waiting_bytes: u64,
    /// At least one of them reaches a native SCTP program.
    pub(crate) is_native: bool,
    associations: BTreeSet<AssociationId>,
}

impl Surveys {
    pub(crate) fn begin(&mut self, question: Question, reply: Sender<Response>) {
        let next = Next::After(ConnectionId(0));
        self.0.push_back(Survey { question, reply, next, found: Found::default() });
    }
}

impl Shard {
    /// Continues the requested reports; reports whether more is to do.
    pub(crate) fn survey(&mut self) -> bool {
        let Some(mut survey) = self.surveys.0.pop_front() else { return false };
        let until = self.read_clock() + SLICE;
        while survey.proceed(self) {
            if self.read_clock() >= until {
                self.surveys.0.push_front(survey);
                return true;
            }
        }
        let response = self.answer_survey(survey.question, survey.found);
        // The asker may have given up: then nobody waits for the answer.
        let _ = survey.reply.send(response);
        !self.surveys.0.is_empty()
    }

    fn answer_survey(&mut self, question: Question, found: Found) -> Response {
        match question {
            Question::Status(_) => {
                self.interception.count_passed(self.policy.rules(), &mut self.history);
                Response::Status(Box::new(self.status(found)))
            }
            Question::Paths => Response::Paths(PathsReport { associations: found.associations }),
            Question::Explain(destination) => {
                Response::Explanation(Box::new(self.explain(destination, found.live)))
            }
        }
    }
}

impl Survey {
    /// Looks at the next few items; reports whether more are left.
    fn proceed(&mut self, shard: &Shard) -> bool {
        for _ in 0..STRIDE {
            self.next = match std::mem::replace(&mut self.next, Next::Done) {
                Next::After(last) => match shard.connections.after(last) {
                    Some((id, known)) => {
                        self.look_at(shard, id, known);
                        Next::After(id)
                    }
                    None => self.behind_connections(shard),
                },
                Next::Shared(mut rest) => match rest.pop() {
                    Some(association) => {
                        self.found.associations.extend(shard.shared_association(association));
                        Next::Shared(rest)
                    }
                    None => self.behind_shared(shard),
                },
                Next::Listeners(mut rest) => match rest.pop() {
                    Some((address, sockets)) => {
                        self.found.listeners.push(shard.listener(address, &sockets));
                        Next::Listeners(rest)
                    }
                    None => Next::Done,
                },
                Next::Done => return false,
            };
        }
        true
    }

    fn look_at(&mut self, shard: &Shard, id: ConnectionId, known: &Known) {
        match self.question {
            Question::Explain(to) if known.role == Role::Client && known.flow.remote() == to => {
                self.found.live.add(shard, known);
            }
            Question::Explain(_) => {}
            Question::Status(_) => {
                self.found.connections.push(shard.connection(id, known));
                self.found.associations.extend(shard.own_association(id, known));
            }
            Question::Paths => self.found.associations.extend(shard.own_association(id, known)),
        }
    }

    fn behind_connections(&self, shard: &Shard) -> Next {
        match self.question {
            Question::Explain(_) => Next::Done,
            Question::Status(_) | Question::Paths => {
                let mut shared: Vec<_> = shard.shared.iter().map(|(association, _)| association).collect();
                shared.reverse();
                Next::Shared(shared)
            }
        }
    }

    fn behind_shared(&mut self, shard: &Shard) -> Next {
        match &mut self.question {
            Question::Status(listeners) => {
                let listeners = shard.reachable(std::mem::take(listeners));
                Next::Listeners(listeners.into_iter().rev().collect())
            }
            Question::Paths | Question::Explain(_) => Next::Done,
        }
    }
}

impl Live {
    fn add(&mut self, shard: &Shard, known: &Known) {
        self.count += 1;
        self.is_native |= matches!(known.stage, Stage::Relaying(_)) && known.peer == Peer::Native;
        if let Some(limit) = shard.limit_of(known) {
            *self.limited_by.entry(limit).or_default() += 1;
        }
        if self.associations.insert(known.association) {
            self.waiting_bytes +=
                shard.engine.info(known.association).map_or(0, |info| info.send_waiting as u64);
        }
    }
}
