//! Fuzz target: a hostile peer on a shared association.
//!
//! The peer sends messages of any content on any stream, including well-formed messages at the wrong time.
//! Meanwhile the driver accepts, refuses, opens and releases channels. It also reads from channels and sends
//! over them. The multiplexer must not panic, and its counts must stay consistent. A channel must not deliver
//! more bytes than the host has granted to the peer. Begin at [`run`].

use bytes::Bytes;
use relay::mux::{ChannelEvent, ChannelId, Generation, Message, Mux, Received, Refusal, Side};
use relay::{PPID_DATA, PPID_END};

use crate::input::Input;

/// Maximum number of steps in one run.
const STEPS_MAX: usize = 400;
/// Exclusive upper bound on the length of a raw message, in bytes.
const MESSAGE_MAX: u8 = 80;
/// Number of streams that messages use. The number is small, so that several messages of a short input use
/// the same stream.
const STREAMS: u8 = 7;
/// Payload protocol identifiers of all kinds of messages, in ASCII.
const KINDS: [&[u8; 4]; 9] =
    [b"scth", b"scto", b"scta", b"sctr", b"sctd", b"scte", b"sctc", b"sctb", b"sctx"];

struct Story<'a> {
    input: Input<'a>,
    mux: Mux,
    channels: Vec<ChannelId>,
}

/// Interprets `data` as a script, and plays it.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let side = if input.flag() { Side::Initiator } else { Side::Acceptor };
    let mut story = Story { input, mux: Mux::new(side), channels: Vec::new() };
    for _ in 0..STEPS_MAX {
        if story.input.is_empty() || !story.step() {
            break;
        }
        story.take_events();
        story.mux.check_invariants();
    }
    for channel in story.channels {
        story.mux.release(channel);
    }
    story.mux.check_invariants();
}

impl Story<'_> {
    /// Plays one step. Returns false if the peer violated the protocol, so the shared association must end.
    fn step(&mut self) -> bool {
        match self.input.below(10) {
            0 => return self.raw(),
            1..=4 => return self.well_formed(),
            5 => self.decide(),
            6 => drop(self.mux.open(address(1), address(2)).map(|channel| self.channels.push(channel))),
            7 => self.read(),
            8 => self.send(),
            _ => self.say(),
        }
        true
    }

    fn raw(&mut self) -> bool {
        let stream = u16::from(self.input.below(STREAMS));
        let ppid = u32::from_be_bytes(*self.input.pick(&KINDS)) ^ u32::from(self.input.below(3) / 2);
        let length = self.input.below(MESSAGE_MAX);
        let bytes = Bytes::copy_from_slice(self.input.bytes(usize::from(length)));
        let is_whole = self.input.below(8) != 0;
        self.mux.on_message(stream, ppid, [bytes], is_whole).is_ok()
    }

    fn well_formed(&mut self) -> bool {
        let stream = u16::from(self.input.below(STREAMS));
        let generation = Generation(u32::from(self.input.below(4)));
        let number = u32::from(self.input.word());
        let message = match self.input.below(10) {
            0 => Message::Hello { version: 1, channels: self.input.word() },
            1 | 2 => Message::Open { generation, window: number, client: address(2), server: address(1) },
            3 => Message::Accepted { generation, window: number },
            4 => Message::Refused { generation, reason: Refusal::Unproven },
            5 => Message::Data(vec![0; number as usize * 16].into()),
            6 => Message::End,
            7 => Message::Credit { generation, limit: u64::from(number) },
            8 => Message::Blocked { generation, limit: u64::from(number) },
            _ => Message::Reset { generation },
        };
        let (ppid, bytes) = message.write();
        assert_eq!(Message::parse(ppid, bytes.clone()), Ok(message), "written and read again");
        self.mux.on_message(stream, ppid, [bytes], true).is_ok()
    }

    fn channel(&mut self) -> Option<ChannelId> {
        let n = usize::from(self.input.byte());
        self.channels.get(n % self.channels.len().max(1)).copied()
    }

    fn decide(&mut self) {
        let Some(channel) = self.channel() else { return };
        match self.input.below(3) {
            0 => self.mux.refuse(channel, Refusal::NotServed),
            1 => self.mux.accept(channel),
            _ => self.mux.release(channel),
        }
    }

    fn read(&mut self) {
        let Some(channel) = self.channel() else { return };
        let mut bytes = 0;
        for _ in 0..self.input.below(4) {
            match self.mux.recv(channel) {
                Some(Received::Data(data)) => bytes += data.len(),
                Some(Received::End) | None => break,
            }
        }
        self.mux.on_consumed(channel, bytes);
    }

    fn send(&mut self) {
        let Some(channel) = self.channel() else { return };
        let room = self.mux.send_room(channel);
        match room {
            0 => self.mux.on_stopped(channel),
            _ if self.input.flag() => {
                self.mux.on_data_sent(channel, room.min(usize::from(self.input.word())))
            }
            _ => self.mux.on_end_sent(channel),
        }
    }

    fn say(&mut self) {
        self.mux.set_spare(usize::from(self.input.word()) * 64);
        self.mux.widen_windows();
        for _ in 0..self.input.below(5) {
            let Some((_, ppid, bytes)) = self.mux.next_out() else { return };
            assert!(ppid != PPID_DATA && ppid != PPID_END, "what carries bytes is the driver's to send");
            assert!(Message::parse(ppid, bytes).is_ok());
            self.mux.on_out_sent();
        }
    }

    fn take_events(&mut self) {
        while let Some((channel, event)) = self.mux.poll_event() {
            if matches!(event, ChannelEvent::Offered { .. }) {
                self.channels.push(channel);
            }
        }
    }
}

fn address(last: u8) -> std::net::SocketAddr {
    ([10, 0, 0, last], 7).into()
}
