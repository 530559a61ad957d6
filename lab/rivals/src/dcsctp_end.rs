//! The engine dcsctp, as published.
//!
//! dcsctp's packet logger formats every packet, even if nothing reads the log. dcsctp computes checksums in
//! software.

use crate::{BUFFER, Engine, PACKET};
use anyhow::{Result, bail};
use bytes::Bytes;
use dcsctp::api::{
    DcSctpSocket, Message, Options, PpId, SendError, SendOptions, SocketEvent, SocketState, SocketTime,
    StreamId,
};
use std::time::{Duration, Instant};

/// A socket, which is one end of the association.
pub(crate) struct End {
    socket: Box<dyn DcSctpSocket>,
    start: Instant,
}

impl End {
    fn new(name: &str, start: Instant) -> End {
        let buffer = BUFFER as usize;
        let options = Options {
            mtu: PACKET.into(),
            max_send_buffer_size: buffer,
            per_stream_send_queue_limit: buffer,
            max_receiver_window_buffer_size: buffer,
            heartbeat_interval: Duration::ZERO,
            ..Options::default()
        };
        End { socket: dcsctp::new_socket(name, &options), start }
    }

    fn set_time(&mut self, now: Instant) {
        self.socket.advance_time(SocketTime::zero() + now.duration_since(self.start));
    }
}

impl Engine for End {
    fn pair(start: Instant) -> Result<(End, End)> {
        let (mut client, server) = (End::new("client", start), End::new("server", start));
        client.socket.connect();
        Ok((client, server))
    }

    fn is_up(&self) -> bool {
        self.socket.state() == SocketState::Connected
    }

    fn fill(&mut self, now: Instant, message: &Bytes) -> Result<()> {
        self.set_time(now);
        loop {
            let message = Message::new(StreamId(0), PpId(0), message.to_vec());
            match self.socket.send(message, &SendOptions::default()) {
                Ok(()) => {}
                Err(SendError::ResourceExhaustion) => return Ok(()),
                Err(error) => bail!("a message cannot be sent: {error:?}"),
            }
        }
    }

    fn carry(&mut self, now: Instant, peer: &mut End) -> Result<()> {
        self.set_time(now);
        peer.set_time(now);
        while let Some(event) = self.socket.poll_event() {
            match event {
                SocketEvent::SendPacket(packet) => peer.socket.handle_input(&packet),
                SocketEvent::OnAborted(kind, why) => bail!("aborted: {kind:?} {why}"),
                _ => {}
            }
        }
        Ok(())
    }

    fn take(&mut self, _: Instant) -> Result<usize> {
        let mut bytes = 0;
        while let Some(message) = self.socket.get_next_message() {
            bytes += message.payload.len();
        }
        Ok(bytes)
    }
}
