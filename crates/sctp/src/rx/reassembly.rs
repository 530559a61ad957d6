//! Fragments into messages, messages into the order of their streams (RFC 9260 sections 6.5, 6.6 and 6.9).
//!
//! A message that came whole and in turn passes straight through. Invariants: runs do not touch; a stream's parked
//! messages come after its next SSN. Begin at [`Reassembly::insert`].

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use smallvec::{SmallVec, smallvec};
use wire::{Data, Ppid, Ssn, StreamId};

use crate::event::Message;
use crate::tx::Seq;

/// Consecutive fragments of one message.
#[derive(Debug)]
struct Run {
    last: Seq,
    stream: StreamId,
    ssn: Ssn,
    ppid: Ppid,
    unordered: bool,
    begin: bool,
    end: bool,
    /// Whether its first part was given to the reader already.
    partly_delivered: bool,
    pieces: SmallVec<[Bytes; 1]>,
}

impl Run {
    fn is_of(&self, chunk: &Data<'_>) -> bool {
        self.stream == chunk.stream
            && self.unordered == chunk.unordered
            && (chunk.unordered || self.ssn == chunk.ssn)
    }

    fn take_message(&mut self) -> Message {
        Message {
            stream: self.stream,
            ppid: self.ppid,
            unordered: self.unordered,
            begin: !self.partly_delivered,
            end: self.end,
            pieces: std::mem::take(&mut self.pieces),
        }
    }
}

/// Messages of one stream that came before their turn, by SSN.
#[derive(Debug, Default)]
struct Stream {
    next: Ssn,
    parked: BTreeMap<u16, Message>,
    /// Whether an unordered message is being delivered in parts.
    unordered_open: bool,
    /// Unordered messages that wait for its end: parts of two could not be told apart.
    behind: Vec<Message>,
}

/// Incomplete and early messages.
#[derive(Debug, Default)]
pub(crate) struct Reassembly {
    runs: BTreeMap<Seq, Run>,
    streams: BTreeMap<u16, Stream>,
    parked: usize,
}

impl Reassembly {
    /// Messages and runs that wait for others.
    pub(crate) fn parked(&self) -> usize {
        self.parked + self.runs.len()
    }

    /// Takes a new chunk; messages that are now whole and in turn go to `ready`. Returns a message that cannot be placed
    /// because the peer used its SSN twice.
    pub(crate) fn insert(
        &mut self,
        seq: Seq,
        chunk: &Data<'_>,
        payload: Bytes,
        ready: &mut VecDeque<Message>,
    ) -> Option<Message> {
        if chunk.begin && chunk.end {
            let message = Message {
                stream: chunk.stream,
                ppid: chunk.ppid,
                unordered: chunk.unordered,
                begin: true,
                end: true,
                pieces: smallvec![payload],
            };
            return self.deliver(chunk.ssn, message, ready);
        }
        let first = self.extend_or_begin(seq, chunk, payload);
        self.join_next(first);
        self.finish(first, ready)
    }

    /// Adds the fragment to the run that ends just before it, or begins a run; returns the run's first sequence.
    fn extend_or_begin(&mut self, seq: Seq, chunk: &Data<'_>, payload: Bytes) -> Seq {
        if let Some((&first, run)) = self.runs.range_mut(..seq).next_back()
            && run.last.next() == seq
            && !run.end
            && !chunk.begin
            && run.is_of(chunk)
        {
            run.last = seq;
            run.end = chunk.end;
            run.pieces.push(payload);
            return first;
        }
        let run = Run {
            last: seq,
            stream: chunk.stream,
            ssn: chunk.ssn,
            ppid: chunk.ppid,
            unordered: chunk.unordered,
            begin: chunk.begin,
            end: chunk.end,
            partly_delivered: false,
            pieces: smallvec![payload],
        };
        self.runs.insert(seq, run);
        seq
    }

    /// Joins the run at `first` with the one that begins just behind it, if both are of one message.
    fn join_next(&mut self, first: Seq) {
        let Some(run) = self.runs.get(&first) else { return };
        let behind = run.last.next();
        let joins = self.runs.get(&behind).is_some_and(|next| {
            !run.end
                && !next.begin
                && next.stream == run.stream
                && next.unordered == run.unordered
                && (run.unordered || next.ssn == run.ssn)
        });
        if !joins {
            return;
        }
        let Some(next) = self.runs.remove(&behind) else { return };
        if let Some(run) = self.runs.get_mut(&first) {
            run.last = next.last;
            run.end = next.end;
            run.pieces.extend(next.pieces);
        }
    }

    /// Delivers the run at `first` if it is a whole message, or the next part of one already begun.
    fn finish(&mut self, first: Seq, ready: &mut VecDeque<Message>) -> Option<Message> {
        let run = self.runs.get_mut(&first)?;
        if run.partly_delivered {
            ready.push_back(run.take_message());
            if run.end {
                let (stream, unordered) = (run.stream, run.unordered);
                self.runs.remove(&first);
                if unordered {
                    self.close_unordered(stream, ready);
                } else {
                    self.advance(stream, ready);
                }
            }
        } else if run.begin && run.end {
            let message = run.take_message();
            let ssn = run.ssn;
            self.runs.remove(&first);
            return self.deliver(ssn, message, ready);
        }
        None
    }

    fn deliver(&mut self, ssn: Ssn, message: Message, ready: &mut VecDeque<Message>) -> Option<Message> {
        let id = message.stream;
        if message.unordered {
            match self.streams.get_mut(&id.0).filter(|s| s.unordered_open) {
                Some(stream) => {
                    stream.behind.push(message);
                    self.parked += 1;
                }
                None => ready.push_back(message),
            }
            return None;
        }
        let stream = self.streams.entry(id.0).or_default();
        if stream.next != ssn {
            return match stream.parked.entry(ssn.0) {
                Entry::Occupied(_) => Some(message),
                Entry::Vacant(place) => {
                    place.insert(message);
                    self.parked += 1;
                    None
                }
            };
        }
        ready.push_back(message);
        self.advance(id, ready);
        None
    }

    /// An unordered message that was delivered in parts is complete: those behind it follow.
    fn close_unordered(&mut self, id: StreamId, ready: &mut VecDeque<Message>) {
        let Some(stream) = self.streams.get_mut(&id.0) else { return };
        stream.unordered_open = false;
        self.parked -= stream.behind.len();
        ready.extend(stream.behind.drain(..));
    }

    /// The stream's turn moves on, and with it what was parked.
    fn advance(&mut self, id: StreamId, ready: &mut VecDeque<Message>) {
        let Some(stream) = self.streams.get_mut(&id.0) else { return };
        stream.next = stream.next.next();
        while let Some(message) = stream.parked.remove(&stream.next.0) {
            self.parked -= 1;
            ready.push_back(message);
            stream.next = stream.next.next();
        }
    }

    /// Gives the reader the beginning of a message that does not fit into the buffer as a whole, if there is one whose
    /// turn it is (RFC 9260 section 6.9: partial delivery). Only what came without gaps below `first_missing` counts.
    pub(crate) fn deliver_partially(&mut self, first_missing: Seq, ready: &mut VecDeque<Message>) {
        for run in self.runs.range_mut(..first_missing).map(|(_, run)| run) {
            let stream = self.streams.entry(run.stream.0).or_default();
            let in_turn = if run.unordered { !stream.unordered_open } else { stream.next == run.ssn };
            if run.begin && !run.partly_delivered && in_turn {
                stream.unordered_open |= run.unordered;
                ready.push_back(run.take_message());
                run.partly_delivered = true;
                return;
            }
        }
    }

    /// Bytes held here, with `overhead` for each piece.
    pub(crate) fn held(&self, overhead: usize) -> usize {
        let runs = self.runs.values().flat_map(|r| &r.pieces);
        let parked = self.streams.values().flat_map(|s| s.parked.values().chain(&s.behind));
        let parked = parked.flat_map(|m| &m.pieces);
        runs.chain(parked).map(|p| p.len() + overhead).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::Tsn;

    fn chunk(flags: &str, ssn: u16, payload: &'static [u8]) -> Data<'static> {
        Data {
            immediate: false,
            unordered: flags.contains('U'),
            begin: flags.contains('B'),
            end: flags.contains('E'),
            tsn: Tsn(0),
            stream: StreamId(0),
            ssn: Ssn(ssn),
            ppid: Ppid(0),
            payload,
        }
    }

    fn feed(r: &mut Reassembly, seq: u64, flags: &str, ssn: u16, payload: &'static [u8]) -> Vec<Bytes> {
        let mut ready = VecDeque::new();
        r.insert(Seq(seq), &chunk(flags, ssn, payload), Bytes::from_static(payload), &mut ready);
        ready.into_iter().map(Message::into_bytes).collect()
    }

    #[test]
    fn fragments_in_any_order_make_one_message() {
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let mut r = Reassembly::default();
            let parts: [(&str, &[u8]); 3] = [("B", b"ab"), ("", b"cd"), ("E", b"e")];
            let mut out = Vec::new();
            for i in order {
                out.extend(feed(&mut r, i as u64, parts[i].0, 0, parts[i].1));
            }
            assert_eq!(out, [Bytes::from_static(b"abcde")], "order {order:?}");
            assert_eq!((r.parked(), r.held(0)), (0, 0));
        }
    }

    #[test]
    fn an_early_message_waits_for_its_turn_and_an_unordered_one_does_not() {
        let mut r = Reassembly::default();
        assert!(feed(&mut r, 1, "BE", 1, b"second").is_empty());
        assert_eq!(feed(&mut r, 2, "BEU", 0, b"now"), [Bytes::from_static(b"now")]);
        assert_eq!(
            feed(&mut r, 0, "BE", 0, b"first"),
            [Bytes::from_static(b"first"), Bytes::from_static(b"second")]
        );
    }

    #[test]
    fn order_holds_across_the_wrap_of_the_ssn() {
        let mut r = Reassembly::default();
        r.streams.entry(0).or_default().next = Ssn(u16::MAX);
        assert!(feed(&mut r, 1, "BE", 0, b"b").is_empty());
        assert_eq!(
            feed(&mut r, 0, "BE", u16::MAX, b"a"),
            [Bytes::from_static(b"a"), Bytes::from_static(b"b")]
        );
    }

    #[test]
    fn neighbouring_messages_do_not_flow_into_each_other() {
        let mut r = Reassembly::default();
        assert!(feed(&mut r, 0, "B", 0, b"a").is_empty());
        assert!(feed(&mut r, 2, "B", 1, b"c").is_empty());
        assert_eq!(feed(&mut r, 1, "E", 0, b"b"), [Bytes::from_static(b"ab")]);
        assert_eq!(feed(&mut r, 3, "E", 1, b"d"), [Bytes::from_static(b"cd")]);
    }

    #[test]
    fn a_message_begun_by_partial_delivery_goes_on_in_parts_and_then_gives_way() {
        let mut r = Reassembly::default();
        feed(&mut r, 0, "B", 0, b"ab");
        feed(&mut r, 3, "BE", 1, b"next");
        let mut ready = VecDeque::new();
        r.deliver_partially(Seq(1), &mut ready);
        let first = ready.pop_front().unwrap();
        assert!(first.begin && !first.end && ready.is_empty());
        r.insert(Seq(1), &chunk("", 0, b"cd"), Bytes::from_static(b"cd"), &mut ready);
        let middle = ready.pop_front().unwrap();
        assert!(!middle.begin && !middle.end);
        r.insert(Seq(2), &chunk("E", 0, b"e"), Bytes::from_static(b"e"), &mut ready);
        let last = ready.pop_front().unwrap();
        assert!(!last.begin && last.end);
        assert_eq!(ready.pop_front().unwrap().into_bytes(), Bytes::from_static(b"next"));
    }
}
