//! A user agent (RFC 3261 sections 8, 10, 12 to 15) that registers one user, makes calls and answers calls.
//!
//! The driver passes commands and received messages to the agent, and polls the agent for [`AgentOutput`]. All requests outside of
//! dialogs go to one proxy. The agent rejects a re-INVITE with 488, and unsupported methods with 405. Each call ends once, with
//! [`AgentEvent::Ended`] or [`AgentEvent::Failed`]. There are never more calls than [`AgentConfig::calls_max`]. Begin with
//! [`Agent::call`].

mod answering;
mod calling;
mod dialog;
mod registering;
mod sdp;
mod timers;

use sdp::silent_session;
pub use sdp::{audio_address, audio_session};

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use base::Time;
use bytes::Bytes;
use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use crate::essentials::Essentials;
use crate::header::{Header, Name};
use crate::message::{Message, Method, Start};
use crate::parse::Limits;
use crate::proxy::{Listener, LostRequest, Outgoing, dialog_number, hop_request, response_hop, server_key};
use crate::transaction::{self, Kind, Timers};
use crate::transport::Hop;
use crate::via::Via;
use dialog::Call;

/// Settings of an agent.
#[derive(Clone, Debug)]
pub struct AgentConfig {
    /// The user's name.
    pub user: String,
    /// The user's domain.
    pub domain: String,
    /// Password for digest authentication. With `None`, a challenged request fails.
    pub password: Option<String>,
    /// The agent's own listener.
    pub listener: Listener,
    /// Proxy that receives the agent's requests outside of dialogs.
    pub proxy: Hop,
    /// Address for incoming RTP. With `None`, calls have no audio.
    pub rtp: Option<SocketAddr>,
    /// Time that an incoming call rings before the agent answers.
    pub ring: Duration,
    /// Limit on concurrent calls. Further incoming calls are rejected with 486.
    pub calls_max: usize,
    /// Transaction timers.
    pub timers: Timers,
}

/// Number of a call. A number is never reused.
pub type CallId = u64;

/// An event that the agent reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AgentEvent {
    /// The registrar has answered with 2xx.
    Registered {
        /// Time since [`Agent::register`].
        took: Duration,
    },
    /// The registrar rejected the REGISTER, did not respond (408), or could not be reached (503).
    NotRegistered {
        /// Status of the response, or 408 or 503.
        status: u16,
        /// True if a response had this status.
        is_answer: bool,
    },
    /// A call is established.
    Answered {
        /// The call.
        call: CallId,
        /// True for an outgoing call.
        is_caller: bool,
        /// For an outgoing call, the time from the first INVITE to the 2xx, including a challenge. For an incoming call, the time from
        /// the INVITE to the ACK.
        took: Duration,
        /// The peer's address for RTP; `None` if the peer receives no audio.
        rtp: Option<SocketAddr>,
    },
    /// An established call has ended.
    Ended {
        /// The call.
        call: CallId,
        /// Time from our BYE to the response; `None` if the peer sent the BYE.
        took: Option<Duration>,
    },
    /// A call has ended before it was established.
    Failed {
        /// The call.
        call: CallId,
        /// Status that ended the call. Without a response, the status is 408 if no response or ACK arrived in time, and 503 if the request
        /// could not be sent.
        status: u16,
        /// True if a response had this status, including our own 487 after a CANCEL.
        is_answer: bool,
    },
}

/// An output of the agent, for the driver.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AgentOutput {
    /// A message to send.
    Send(Outgoing),
    /// An event.
    Event(AgentEvent),
}

/// Purpose of a request that the agent sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Purpose {
    Register {
        since: Time,
    },
    Invite(CallId),
    Bye(CallId),
    /// BYE with this CSeq for a dialog that the agent does not want. Its response has no effect.
    ForkBye {
        cseq: u32,
    },
}

#[derive(Debug)]
struct Client {
    machine: transaction::Client,
    purpose: Purpose,
    hop: Hop,
    request: Message,
    /// The request as sent, for retransmissions.
    bytes: Bytes,
    branch: String,
    has_credentials: bool,
    /// True if the request was sent again over a new association.
    is_resent: bool,
}

#[derive(Debug)]
struct Server {
    machine: transaction::Server,
    key: Box<[u8]>,
    hop: Hop,
    last: Option<Bytes>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Sleeper {
    Client(u64),
    Server(u64),
    Call(CallId),
    Register,
}

/// A user agent.
#[derive(Debug)]
pub struct Agent {
    config: AgentConfig,
    rng: ChaCha12Rng,
    next_id: u64,
    clients: HashMap<u64, Client>,
    servers: HashMap<u64, Server>,
    server_keys: HashMap<Box<[u8]>, u64>,
    calls: BTreeMap<CallId, Call>,
    /// Incoming INVITEs whose calls are not established: no 200 was sent, or no ACK has arrived.
    ringing: BTreeMap<CallId, Message>,
    /// Numbers of calls by Call-ID and our tag.
    dialogs: HashMap<(Bytes, Bytes), CallId>,
    registration: registering::Registration,
    wakes: BinaryHeap<Reverse<(Time, Sleeper)>>,
    outputs: VecDeque<AgentOutput>,
}

impl Agent {
    /// Creates an idle agent. `seed` must be unpredictable.
    pub fn new(config: AgentConfig, seed: [u8; 32]) -> Agent {
        let mut rng = ChaCha12Rng::from_seed(seed);
        let registration = registering::Registration::new(format!("{:016x}", rng.next_u64()));
        Agent {
            config,
            rng,
            next_id: 0,
            clients: HashMap::new(),
            servers: HashMap::new(),
            server_keys: HashMap::new(),
            calls: BTreeMap::new(),
            ringing: BTreeMap::new(),
            dialogs: HashMap::new(),
            registration,
            wakes: BinaryHeap::new(),
            outputs: VecDeque::new(),
        }
    }

    /// Returns the session description for offers and answers.
    fn session(&self) -> Bytes {
        let host = self.config.listener.address.ip();
        self.config.rtp.map_or_else(|| silent_session(host), audio_session)
    }

    /// Returns the next output.
    pub fn poll_output(&mut self) -> Option<AgentOutput> {
        self.outputs.pop_front()
    }

    /// Returns the number of calls in progress.
    pub fn calls(&self) -> usize {
        self.calls.len()
    }

    /// Handles a complete message from hop `from`. Malformed messages are dropped.
    pub fn handle_message(&mut self, now: Time, from: Hop, bytes: Bytes) {
        let Ok(message) = Message::parse(bytes, &Limits::default()) else { return };
        let Ok(known) = Essentials::of(&message) else { return };
        if message.method().is_some() {
            self.handle_request(now, from, message, &known);
        } else {
            self.handle_response(now, message, &known);
        }
    }

    /// Handles the driver's failure to send a request. The effect is the same as the arrival of a 503. `on_failure` is the number in
    /// [`Outgoing`].
    pub fn handle_send_failure(&mut self, now: Time, on_failure: u64) {
        // A transaction with a final response has had its effect. It remains only for retransmissions.
        let is_pending = |client: &&Client| client.machine.is_pending();
        let Some(client) = self.clients.get(&on_failure).filter(is_pending) else { return };
        if client.is_resent && client.machine.is_proceeding() {
            return;
        }
        let purpose = client.purpose;
        self.clients.remove(&on_failure);
        self.on_final(now, purpose, 503, None);
    }

    /// Handles the failure of the association over which a request was sent. If no response has arrived, the request is sent once more if
    /// [`LostRequest::may_resend`] is set, or else fails as in [`Agent::handle_send_failure`]. An INVITE of a call that was hung up is not
    /// sent again.
    pub fn handle_lost_request(&mut self, now: Time, lost: LostRequest) {
        let id = lost.on_failure;
        let awaits_response = |client: &&Client| client.machine.awaits_first_response();
        let Some(client) = self.clients.get(&id).filter(awaits_response) else { return };
        let is_flow = client.hop.connection.is_some();
        let may_resend = lost.may_resend && !client.is_resent && !is_flow && !self.is_hung_up(client.purpose);
        let client = self.clients.get_mut(&id).filter(|_| may_resend);
        let Some(client) = client else { return self.handle_send_failure(now, id) };
        client.is_resent = true;
        client.machine.restart(now);
        let (hop, bytes) = (client.hop, client.bytes.clone());
        let call_id = client.request.first(Name::CallId).cloned().unwrap_or_default();
        self.send(hop, bytes, Some(id), &call_id);
        self.schedule_client(id);
    }

    fn handle_request(&mut self, now: Time, from: Hop, mut request: Message, known: &Essentials) {
        let Ok(via) = Via::parse(&known.via) else { return };
        let key = server_key(&request, known, &via, &known.cseq.method);
        let is_ack = known.cseq.method == Method::Ack;
        if let Some(&id) = self.server_keys.get(&key) {
            self.handle_again(now, id, is_ack);
            return;
        }
        if is_ack {
            self.on_ack(now, known);
            return;
        }
        let (hop, value) = response_hop(from, &via);
        let invite_key = server_key(&request, known, &via, &Method::Invite);
        request.replace_first(Name::Via, &value);
        let id = self.new_id();
        let kind =
            Kind { is_invite: known.cseq.method == Method::Invite, is_reliable: hop.transport.is_reliable() };
        let machine = transaction::Server::start(kind, self.config.timers, now);
        self.server_keys.insert(key.clone(), id);
        self.servers.insert(id, Server { machine, key, hop, last: None });
        self.serve(now, id, &request, known, &invite_key);
    }

    fn handle_again(&mut self, now: Time, id: u64, is_ack: bool) {
        let Some(server) = self.servers.get_mut(&id) else { return };
        if is_ack {
            server.machine.on_ack(now);
            self.schedule_server(id);
        } else if server.machine.on_request() {
            self.resend_response(id);
        }
    }

    fn handle_response(&mut self, now: Time, response: Message, known: &Essentials) {
        let Some((id, branch)) = branch_of(known) else { return };
        let Some(client) = self.clients.get_mut(&id).filter(|client| client.branch == branch) else { return };
        let status = response.status();
        let verdict = client.machine.on_response(now, status);
        if verdict.ack {
            let to = response.all(Name::To).next().cloned();
            let ack = hop_request(&client.request, Method::Ack, to).to_bytes();
            let hop = client.hop;
            self.send(hop, ack, None, &known.call_id);
        }
        let Some(client) = self.clients.get(&id).filter(|_| verdict.pass) else { return };
        let purpose = client.purpose;
        self.schedule_client(id);
        match status {
            100..=199 => {}
            401 | 407 if self.try_with_password(now, id, &response) => {}
            _ => self.on_final(now, purpose, status, Some(&response)),
        }
    }

    fn on_final(&mut self, now: Time, purpose: Purpose, status: u16, response: Option<&Message>) {
        match purpose {
            Purpose::Register { since } => self.on_registered(now, since, status, response),
            Purpose::Invite(call) => self.on_invite_final(now, call, status, response),
            Purpose::Bye(call) => self.on_bye_final(now, call),
            Purpose::ForkBye { .. } => {}
        }
    }

    /// Repeats a challenged request with credentials (section 22.2). A request that already had credentials is not repeated. Returns true
    /// if the request was repeated.
    fn try_with_password(&mut self, now: Time, id: u64, response: &Message) -> bool {
        let cnonce = self.token();
        let Some(client) = self.clients.get(&id).filter(|client| !client.has_credentials) else {
            return false;
        };
        let Some(password) = self.config.password.clone() else { return false };
        let mut request = client.request.clone();
        let (asked, answered) = match response.status() {
            401 => (Name::WwwAuthenticate, Name::Authorization),
            _ => (Name::ProxyAuthenticate, Name::ProxyAuthorization),
        };
        let Some(method) = request.method().cloned() else { return false };
        let (user, uri) = (self.config.user.clone(), request.request_uri().to_vec());
        let answer = |header: &Header| {
            crate::digest::answer(&header.value, &user, &password, method.as_bytes(), &uri, &cnonce)
        };
        let Some(value) = response.all(asked).find_map(answer) else { return false };
        let (purpose, hop) = (client.purpose, client.hop);
        let cseq = self.next_cseq(purpose);
        request.pop_first(Name::Via);
        let method = String::from_utf8_lossy(method.as_bytes()).into_owned();
        request.set(Header::new(Name::CSeq, &format!("{cseq} {method}")));
        request.set(Header::new(answered, &value));
        self.start_client(now, purpose, hop, request, true);
        true
    }

    fn next_cseq(&mut self, purpose: Purpose) -> u32 {
        match purpose {
            Purpose::Register { .. } => self.registration.next_cseq(),
            Purpose::Invite(call) | Purpose::Bye(call) => {
                self.calls.get_mut(&call).map_or(1, Call::next_cseq)
            }
            Purpose::ForkBye { cseq } => cseq + 1,
        }
    }

    fn new_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    fn token(&mut self) -> String {
        format!("{:016x}", self.rng.next_u64())
    }

    fn send(&mut self, hop: Hop, bytes: Bytes, on_failure: Option<u64>, call_id: &[u8]) {
        let dialog = dialog_number(call_id);
        let message = Outgoing { hop, domain: None, bytes, on_failure, dialog, is_new: false };
        self.outputs.push_back(AgentOutput::Send(message));
    }

    fn tell(&mut self, event: AgentEvent) {
        self.outputs.push_back(AgentOutput::Event(event));
    }

    /// Sends a request in a new client transaction.
    fn start_client(
        &mut self,
        now: Time,
        purpose: Purpose,
        hop: Hop,
        mut request: Message,
        has_credentials: bool,
    ) {
        let id = self.new_id();
        let branch = format!("z9hG4bK{id:x}.{}", self.token());
        self.push_via(&mut request, &branch);
        let is_invite = matches!(purpose, Purpose::Invite(_));
        let kind = Kind { is_invite, is_reliable: hop.transport.is_reliable() };
        let machine = transaction::Client::start(kind, self.config.timers, now);
        let (bytes, call_id) = (request.to_bytes(), request.first(Name::CallId).cloned().unwrap_or_default());
        let client = Client {
            machine,
            purpose,
            hop,
            request,
            bytes: bytes.clone(),
            branch,
            has_credentials,
            is_resent: false,
        };
        self.clients.insert(id, client);
        self.send(hop, bytes, Some(id), &call_id);
        self.schedule_client(id);
    }

    fn push_via(&self, request: &mut Message, branch: &str) {
        let Listener { transport, address } = self.config.listener;
        let value = format!("SIP/2.0/{} {address};rport;branch={branch}", transport.as_str());
        request.push_front(Header::new(Name::Via, &value));
    }

    /// Returns the URI of our Contact.
    fn contact(&self) -> String {
        let Listener { transport, address } = self.config.listener;
        format!("<sip:{}@{address};transport={}>", self.config.user, transport.as_lower_str())
    }

    fn respond(&mut self, now: Time, id: u64, response: &Message) {
        let Some(server) = self.servers.get_mut(&id) else { return };
        if !server.machine.on_response(now, response.status()) {
            return;
        }
        let bytes = response.to_bytes();
        server.last = Some(bytes.clone());
        let hop = server.hop;
        let call_id = response.first(Name::CallId).cloned().unwrap_or_default();
        self.send(hop, bytes, None, &call_id);
        self.schedule_server(id);
    }
}

/// Builds a new request without Via.
fn request(method: Method, uri: Bytes, headers: Vec<Header>, body: Bytes) -> Message {
    let mut headers = headers;
    headers.push(Header::new(Name::MaxForwards, "70"));
    headers.push(Header::new(Name::ContentLength, &body.len().to_string()));
    Message { start: Start::Request { method, uri }, headers, body, fault: None }
}

/// Returns the number of the client transaction in the first Via of a response, and the branch of that Via.
fn branch_of(known: &Essentials) -> Option<(u64, String)> {
    let branch = Via::parse(&known.via).ok()?.branch()?;
    let hex = branch.strip_prefix(b"z9hG4bK")?.split(|&b| b == b'.').next()?;
    let id = u64::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok()?;
    Some((id, String::from_utf8_lossy(branch).into_owned()))
}
