//! One call and its dialog (RFC 3261 section 12).

use std::time::Duration;

use base::Time;
use bytes::Bytes;

use crate::address::Address;
use crate::cursor::trim;
use crate::header::{Header, Name};
use crate::message::{Message, Method};
use crate::transport::Hop;

/// The state of a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// An outgoing call that is not established.
    Calling {
        since: Time,
        hang_up: bool,
    },
    /// An incoming call that is not answered.
    Ringing {
        since: Time,
        answer_at: Time,
        server: u64,
    },
    /// An incoming call that is answered. The 200 is retransmitted until the ACK arrives (section 13.3.1.4).
    Answered {
        since: Time,
        resend: Time,
        interval: Duration,
        give_up: Time,
        bytes: Bytes,
        hop: Hop,
    },
    Up,
    /// A call for which BYE was sent.
    Leaving {
        since: Time,
    },
}

/// A call.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) call_id: Bytes,
    /// Our tag in the dialog.
    pub(super) tag: Bytes,
    /// Value of From in our requests.
    pub(super) local: Bytes,
    /// Value of To in our requests.
    pub(super) remote: Bytes,
    /// Request-URI of our requests: the called URI, or the URI in the peer's Contact once it is known.
    pub(super) target: Bytes,
    /// Route set, in the order in which our requests traverse it.
    pub(super) routes: Vec<Bytes>,
    pub(super) cseq: u32,
    /// ACK for the 2xx. Each retransmitted 2xx causes this ACK to be sent again.
    pub(super) ack: Option<Bytes>,
    pub(super) hop: Hop,
    pub(super) state: State,
    /// Dialogs with further callees, if a proxy forked the INVITE and more than one callee answered. The agent has ended these dialogs.
    pub(super) forks: Vec<Fork>,
}

/// A dialog with a callee whose 2xx was not the first. The agent keeps it to acknowledge retransmissions of the 2xx.
#[derive(Clone, Debug)]
pub(super) struct Fork {
    /// The callee's tag.
    pub(super) tag: Bytes,
    pub(super) hop: Hop,
    pub(super) ack: Bytes,
}

impl Call {
    pub(super) fn next_cseq(&mut self) -> u32 {
        self.cseq += 1;
        self.cseq
    }

    /// Reports whether the peer of this call's dialog has this tag. The callees of a forked INVITE have different tags.
    pub(super) fn is_with(&self, tag: Option<&Bytes>) -> bool {
        Address::parse(&self.remote).ok().and_then(|peer| peer.tag()) == tag.map(|tag| &tag[..])
    }

    /// Builds a request within the dialog, with From, To, Call-ID, CSeq and Route (section 12.2.1.1).
    pub(super) fn request(&self, method: Method, cseq: u32) -> Message {
        let line = [cseq.to_string().as_bytes(), b" ", method.as_bytes()].concat();
        let mut headers = vec![
            Header::of_bytes(Name::From, &self.local),
            Header::of_bytes(Name::To, &self.remote),
            Header::of_bytes(Name::CallId, &self.call_id),
            Header::of_bytes(Name::CSeq, &line),
        ];
        headers.extend(self.routes.iter().map(|route| Header::of_bytes(Name::Route, route)));
        super::request(method, self.target.clone(), headers, Bytes::new())
    }

    /// Sets the remote target and the route set from a message (sections 12.1.1 and 12.1.2). `backwards` reverses the order of
    /// Record-Route. A caller sets this parameter. A callee does not.
    pub(super) fn learn(&mut self, message: &Message, backwards: bool) {
        if let Some(uri) = contact_of(message) {
            self.target = uri;
        }
        self.routes = message.elements(Name::RecordRoute).map(Bytes::copy_from_slice).collect();
        if backwards {
            self.routes.reverse();
        }
    }
}

/// Returns the URI of the first Contact.
pub(super) fn contact_of(message: &Message) -> Option<Bytes> {
    let value = message.elements(Name::Contact).next()?;
    Address::parse(trim(value)).ok().map(|contact| Bytes::copy_from_slice(contact.uri))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::Limits;

    #[test]
    fn the_caller_reverses_the_record_route_and_the_callee_keeps_its_order() {
        let text =
            "SIP/2.0 200 OK\r\nContact: <sip:bob@192.0.2.2>\r\nRecord-Route: <sip:b;lr>, <sip:a;lr>\r\n\r\n";
        let message = Message::parse(Bytes::from_static(text.as_bytes()), &Limits::default()).unwrap();
        let address = "192.0.2.1:5060".parse().unwrap();
        let hop = Hop { listener: 0, transport: crate::Transport::Udp, address, connection: None };
        let mut call = Call {
            call_id: Bytes::new(),
            tag: Bytes::new(),
            local: Bytes::new(),
            remote: Bytes::new(),
            target: Bytes::new(),
            routes: Vec::new(),
            cseq: 1,
            ack: None,
            hop,
            state: State::Up,
            forks: Vec::new(),
        };
        call.learn(&message, true);
        assert_eq!(call.routes, [&b"<sip:a;lr>"[..], b"<sip:b;lr>"]);
        assert_eq!(call.target, &b"sip:bob@192.0.2.2"[..]);
        call.learn(&message, false);
        assert_eq!(call.routes, [&b"<sip:b;lr>"[..], b"<sip:a;lr>"]);
    }
}
