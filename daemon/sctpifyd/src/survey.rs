//! Gathers reports that cover every connection. Each turn gathers only one slice of a report, because packets wait during a
//! turn.
//!
//! A report does not show a single instant. If a connection ends while the report is gathered, the report may include or omit
//! it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use control::{Association, Connection, LinkReading, LinkSum, Listener, Response, Role};

use ops::LimitedBy;
use relay::Peer;
use sctp::AssociationId;

use crate::clock::Clock;
use crate::connection::{Connection as Known, ConnectionId, Stage};
use crate::listeners::Listed;
use crate::manual::Socket;
use crate::report::Report;

/// Time limit for a slice. Packets wait during a slice.
const SLICE: Duration = Duration::from_micros(200);
/// Number of items that are gathered between two readings of the clock.
const STRIDE: usize = 16;

/// Subject of a report, and the receiver of the answer.
#[derive(Debug)]
pub(crate) enum Question {
    /// The status, with these TCP listeners of the host.
    Status(Vec<Listed>, Sender<Response>),
    Paths(Sender<Response>),
    /// The decision on connections to this destination.
    Explain(SocketAddr, Sender<Response>),
    /// The counts of the links to all peers.
    Links(Sender<Vec<LinkReading>>),
}

/// Reports in progress, oldest request first.
#[derive(Default)]
pub(crate) struct Surveys(VecDeque<Survey>);

struct Survey {
    question: Question,
    next: Next,
    found: Found,
}

/// Next part of a report to gather.
enum Next {
    /// The connections that began after this one.
    After(ConnectionId),
    /// These shared associations; the last one in the list is next.
    Shared(Vec<AssociationId>),
    /// These listeners; the last one in the list is next.
    Listeners(Vec<(SocketAddr, Vec<Socket>)>),
    /// No further part.
    Done,
}

/// The parts of a report that have been gathered.
#[derive(Default)]
pub(crate) struct Found {
    pub(crate) connections: Vec<Connection>,
    pub(crate) associations: Vec<Association>,
    pub(crate) listeners: Vec<Listener>,
    /// The links of all associations, if only these are asked for.
    pub(crate) links: LinkSum,
    pub(crate) live: Live,
}

/// Connections of local programs to the destination of an `explain` report.
#[derive(Default)]
pub(crate) struct Live {
    pub(crate) count: usize,
    /// Number of connections for each cause that limits their sending.
    pub(crate) limited_by: BTreeMap<LimitedBy, usize>,
    /// Number of bytes that wait to be sent on the connections' associations.
    pub(crate) waiting_bytes: u64,
    /// At least one connection reaches a native SCTP program.
    pub(crate) is_native: bool,
    associations: BTreeSet<AssociationId>,
}

/// A completely gathered report.
pub(crate) struct Gathered {
    pub(crate) question: Question,
    pub(crate) found: Found,
}

impl Surveys {
    pub(crate) fn begin(&mut self, question: Question) {
        self.0.push_back(Survey::new(question));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Continues the oldest report. Returns the report once it is complete.
    pub(crate) fn proceed(&mut self, clock: Clock, report: &Report<'_>) -> Option<Gathered> {
        let survey = self.0.front_mut()?;
        let until = clock.now() + SLICE;
        while survey.proceed(report) {
            if clock.now() >= until {
                return None;
            }
        }
        let Survey { question, found, .. } = self.0.pop_front()?;
        Some(Gathered { question, found })
    }
}

/// Returns the links of all associations at once. Packets wait meanwhile.
pub(crate) fn all_links(report: &Report<'_>) -> LinkSum {
    let (reply, _) = channel();
    let mut survey = Survey::new(Question::Links(reply));
    while survey.proceed(report) {}
    survey.found.links
}

impl Survey {
    fn new(question: Question) -> Survey {
        Survey { question, next: Next::After(ConnectionId(0)), found: Found::default() }
    }

    /// Gathers the next [`STRIDE`] items. Reports whether more are left.
    fn proceed(&mut self, report: &Report<'_>) -> bool {
        for _ in 0..STRIDE {
            self.next = match std::mem::replace(&mut self.next, Next::Done) {
                Next::After(last) => match report.connection_after(last) {
                    Some((id, known)) => {
                        self.look_at(report, id, known);
                        Next::After(id)
                    }
                    None => self.behind_connections(report),
                },
                Next::Shared(mut rest) => match rest.pop() {
                    Some(association) => {
                        if let Some(association) = report.shared_association(association) {
                            self.found.add(&self.question, association);
                        }
                        Next::Shared(rest)
                    }
                    None => self.behind_shared(report),
                },
                Next::Listeners(mut rest) => match rest.pop() {
                    Some((address, sockets)) => {
                        self.found.listeners.push(report.listener(address, &sockets));
                        Next::Listeners(rest)
                    }
                    None => Next::Done,
                },
                Next::Done => return false,
            };
        }
        true
    }

    fn look_at(&mut self, report: &Report<'_>, id: ConnectionId, known: &Known) {
        match self.question {
            Question::Explain(to, _) if known.role() == Role::Client && known.flow().remote() == to => {
                self.found.live.add(report, known);
                return;
            }
            Question::Explain(..) => return,
            Question::Status(..) => self.found.connections.push(report.connection(id, known)),
            Question::Paths(_) | Question::Links(_) => {}
        }
        if let Some(association) = report.own_association(id, known) {
            self.found.add(&self.question, association);
        }
    }

    fn behind_connections(&self, report: &Report<'_>) -> Next {
        match self.question {
            Question::Explain(..) => Next::Done,
            Question::Status(..) | Question::Paths(_) | Question::Links(_) => {
                let mut shared: Vec<_> = report.shared_associations().collect();
                shared.reverse();
                Next::Shared(shared)
            }
        }
    }

    fn behind_shared(&mut self, report: &Report<'_>) -> Next {
        match &mut self.question {
            Question::Status(listeners, _) => {
                let listeners = report.reachable(std::mem::take(listeners));
                Next::Listeners(listeners.into_iter().rev().collect())
            }
            Question::Paths(_) | Question::Explain(..) | Question::Links(_) => Next::Done,
        }
    }
}

impl Found {
    fn add(&mut self, question: &Question, association: Association) {
        match question {
            Question::Links(_) => self.links.add(&association),
            _ => self.associations.push(association),
        }
    }
}

impl Live {
    fn add(&mut self, report: &Report<'_>, known: &Known) {
        self.count += 1;
        self.is_native |= matches!(known.stage(), Stage::Relaying(_)) && known.peer() == Peer::Native;
        if let Some(limit) = report.limit_of(known) {
            *self.limited_by.entry(limit).or_default() += 1;
        }
        if self.associations.insert(known.association()) {
            self.waiting_bytes += report.waiting_bytes(known.association());
        }
    }
}
