//! One association as a blocking socket, for sequential programs.
//!
//! Packets and timers are handled only during calls of [`Talk`] and [`Listening`]. While the program makes no
//! call, the peer gets no answers. Begin with [`Talk::connect`] and [`Listening::open`].

use crate::host::Host;
use crate::modes::{Guest, Inbox, Whole, await_event, connect, is_over, linger, offer};
use crate::options::Options;
use anyhow::{Result, ensure};
use base::Time;
use bytes::Bytes;
use sctp::{AssociationId, CloseReason, Event, StreamId};
use std::net::IpAddr;

/// Open SCTP port that accepts one association.
pub struct Listening {
    host: Host,
}

/// An established association.
pub struct Talk {
    host: Host,
    id: AssociationId,
    inbox: Inbox,
    is_over: bool,
}

impl Listening {
    /// Opens the carriers of `options`. After this call, a peer can connect to SCTP port `port`.
    ///
    /// # Errors
    /// Those of [`Host::open`].
    pub fn open(options: &Options, port: u16) -> Result<Listening> {
        Ok(Listening { host: Host::open(options, Some(port))? })
    }

    /// Waits for the first incoming association.
    ///
    /// # Errors
    /// When sockets fail, or when the association ends at once without a SHUTDOWN.
    pub fn accept(mut self) -> Result<Talk> {
        let mut guest = Guest::default();
        loop {
            self.host.turn(Time::NEVER)?;
            let is_over = guest.take_events(&mut self.host, |_| {})?;
            if let Some(id) = guest.id {
                return Ok(Talk { host: self.host, id, inbox: Inbox::default(), is_over });
            }
        }
    }
}

impl Talk {
    /// Connects to `port` of `remote`, from the first local address of `options`.
    ///
    /// # Errors
    /// When sockets fail, or the peer refuses or does not answer.
    pub fn connect(options: &Options, remote: IpAddr, port: u16) -> Result<Talk> {
        let mut host = Host::open(options, None)?;
        let id = connect(&mut host, options, remote, port)?;
        await_event(&mut host, |event| matches!(event, Event::Established { .. }))?;
        Ok(Talk { host, id, inbox: Inbox::default(), is_over: false })
    }

    /// Sends a message as soon as the send buffer has room for it.
    ///
    /// # Errors
    /// When sockets fail, the association has ended, or the message is longer than [`Options::buffer`].
    pub fn send(&mut self, message: &Bytes) -> Result<()> {
        let message = Whole { stream: StreamId(0), unordered: false, bytes: message.clone() };
        while !offer(&mut self.host, self.id, &message)? {
            self.turn()?;
            ensure!(!self.is_over, "the peer ended the association early");
        }
        Ok(())
    }

    /// Waits for the next message of any stream. Returns `None` once the peer has shut the association down.
    ///
    /// # Errors
    /// When sockets fail, or the association ended otherwise than by SHUTDOWN.
    pub fn receive(&mut self) -> Result<Option<Bytes>> {
        loop {
            if let Some(message) = self.inbox.next(&mut self.host, self.id) {
                return Ok(Some(message.bytes));
            }
            if self.is_over {
                return Ok(None);
            }
            self.turn()?;
        }
    }

    /// Shuts the association down after the peer has acknowledged all data, and waits for its end.
    ///
    /// # Errors
    /// When sockets fail, or the association ends otherwise than by SHUTDOWN.
    pub fn close(mut self) -> Result<()> {
        if !self.is_over {
            let now = self.host.now();
            self.host.engine.shutdown(now, self.id);
            await_event(&mut self.host, |event| matches!(event, Event::Closed(CloseReason::Graceful)))?;
        }
        linger(&mut self.host)
    }

    fn turn(&mut self) -> Result<()> {
        self.host.turn(Time::NEVER)?;
        while let Some((id, event)) = self.host.poll_event() {
            self.is_over |= id == self.id && is_over(&event)?;
        }
        Ok(())
    }
}
