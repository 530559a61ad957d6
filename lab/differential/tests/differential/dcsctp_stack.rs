//! Adapter of dcSCTP to [`Stack`].

use dcsctp::api::{
    DcSctpSocket, ErrorKind, Message as Outgoing, Options, PpId, SendOptions, SocketEvent, SocketTime,
    StreamId, ZeroChecksumAlternateErrorDetectionMethod,
};

use crate::ours::PORT;
use crate::stack::{Effort, End, Features, Message, Now, Stack};

pub(crate) struct Dcsctp {
    socket: Box<dyn DcSctpSocket>,
    packets: Vec<Vec<u8>>,
    end: End,
}

impl Dcsctp {
    pub(crate) fn new(features: Features) -> Dcsctp {
        let method = ZeroChecksumAlternateErrorDetectionMethod(u32::from(features.zero_checksum));
        let options = Options {
            local_port: PORT,
            remote_port: PORT,
            max_receiver_window_buffer_size: features.receive_buffer as usize,
            enable_partial_reliability: features.partial_reliability,
            enable_message_interleaving: features.interleaving,
            zero_checksum_alternate_error_detection_method: method,
            ..Options::default()
        };
        Dcsctp { socket: dcsctp::new_socket("peer", &options), packets: Vec::new(), end: End::Opening }
    }

    fn work(&mut self) {
        while let Some(event) = self.socket.poll_event() {
            match event {
                SocketEvent::SendPacket(packet) => self.packets.push(packet),
                SocketEvent::OnConnected() | SocketEvent::OnConnectionRestarted() => self.end = End::Up,
                SocketEvent::OnClosed() => self.end = End::Graceful,
                SocketEvent::OnAborted(kind, _) => {
                    self.end = if kind == ErrorKind::NoError { End::Graceful } else { End::Broken };
                }
                _ => {}
            }
        }
    }
}

impl Stack for Dcsctp {
    fn connect(&mut self, now: Now) {
        self.tick(now);
        self.socket.connect();
        self.work();
    }

    fn handle(&mut self, now: Now, packet: &[u8]) {
        self.socket.advance_time(SocketTime::zero() + now);
        self.socket.handle_input(packet);
        self.work();
    }

    fn timeout(&self) -> Option<Now> {
        let next = self.socket.poll_timeout();
        (next != SocketTime::infinite_future()).then(|| next - SocketTime::zero())
    }

    fn tick(&mut self, now: Now) {
        self.socket.advance_time(SocketTime::zero() + now);
        self.work();
    }

    fn transmit(&mut self, _: Now) -> Vec<Vec<u8>> {
        self.work();
        std::mem::take(&mut self.packets)
    }

    fn send(&mut self, now: Now, message: &Message) -> bool {
        self.socket.advance_time(SocketTime::zero() + now);
        let (lifetime, max_retransmissions) = match message.effort {
            Effort::Full => (None, None),
            Effort::Retransmissions(n) => (None, Some(n)),
            Effort::Lifetime(lifetime) => (Some(lifetime), None),
        };
        let options =
            SendOptions { unordered: message.unordered, lifetime, max_retransmissions, lifecycle_id: None };
        let outgoing = Outgoing::new(StreamId(message.stream), PpId(53), message.bytes.to_vec());
        let taken = self.socket.send(outgoing, &options).is_ok();
        self.work();
        taken
    }

    fn recv(&mut self, _: Now) -> Option<(u16, Vec<u8>)> {
        let message = self.socket.get_next_message()?;
        self.work();
        Some((message.stream_id.0, message.payload))
    }

    fn reset(&mut self, now: Now, stream: u16) {
        self.tick(now);
        _ = self.socket.reset_streams(&[StreamId(stream)]);
        self.work();
    }

    fn shutdown(&mut self, now: Now) {
        self.tick(now);
        self.socket.shutdown();
        self.work();
    }

    fn abort(&mut self, now: Now) {
        self.tick(now);
        self.socket.close();
        self.work();
        // dcSCTP reports its own abort as a close without an error.
        self.end = End::Broken;
    }

    fn end(&self) -> End {
        self.end
    }
}
