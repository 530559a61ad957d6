//! Script of a conversation between two programs over one connection. The script consists of numbers of bytes, so it fits any
//! transport.
//!
//! Begin at [`Exchange::new`] or [`Exchange::upload`]. A driver calls [`Exchange::may_have_sent`] whenever a side has received
//! data. The conversation ends when [`Exchange::is_over`] returns true.

/// An end of a connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Side {
    /// The end that opens the connection.
    Client,
    /// The end that accepts the connection.
    Server,
}

impl Side {
    /// Returns the other end.
    pub fn other(self) -> Side {
        match self {
            Side::Client => Side::Server,
            Side::Server => Side::Client,
        }
    }
}

/// Bytes of both sides in one step. A side begins its part when it has received all bytes of the other side's earlier steps.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Step {
    /// Bytes from the client.
    pub client: u64,
    /// Bytes from the server.
    pub server: u64,
}

impl Step {
    /// Returns the bytes of a side.
    fn of(self, side: Side) -> u64 {
        match side {
            Side::Client => self.client,
            Side::Server => self.server,
        }
    }
}

/// A whole conversation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Exchange {
    steps: Vec<Step>,
    totals: Step,
}

impl Exchange {
    /// Creates a conversation of these steps, in this order.
    pub fn new(steps: Vec<Step>) -> Exchange {
        let sum = |side| steps.iter().map(|step| step.of(side)).sum();
        let totals = Step { client: sum(Side::Client), server: sum(Side::Server) };
        Exchange { steps, totals }
    }

    /// Creates a conversation in which the client sends this many bytes, and the server sends none.
    pub fn upload(bytes: u64) -> Exchange {
        Exchange::new(vec![Step { client: bytes, server: 0 }])
    }

    /// Returns the total of bytes that `side` may have handed over. `received` is the total that `side` has received from the
    /// other side.
    pub fn may_have_sent(&self, side: Side, received: u64) -> u64 {
        let (mut own, mut others) = (0, 0);
        for step in &self.steps {
            if received < others {
                break;
            }
            own += step.of(side);
            others += step.of(side.other());
        }
        own
    }

    /// Reports whether the conversation has ended. The arguments are the totals of received bytes.
    pub fn is_over(&self, client_received: u64, server_received: u64) -> bool {
        client_received >= self.totals.server && server_received >= self.totals.client
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(client: u64, server: u64) -> Step {
        Step { client, server }
    }

    #[test]
    fn a_side_waits_for_the_previous_step_and_both_sides_of_a_step_send_concurrently() {
        let exchange = Exchange::new(vec![step(40, 41), step(1000, 0), step(0, 500), step(10, 0)]);
        let client = |received| exchange.may_have_sent(Side::Client, received);
        assert_eq!([0, 40, 41, 540, 541].map(client), [40, 40, 1040, 1040, 1050]);
        let server = |received| exchange.may_have_sent(Side::Server, received);
        assert_eq!([0, 40, 1039, 1040, 1050].map(server), [41, 41, 41, 541, 541]);
    }

    #[test]
    fn an_exchange_ends_when_both_sides_have_received_everything() {
        let exchange = Exchange::new(vec![step(10, 20)]);
        assert!(!exchange.is_over(19, 10) && !exchange.is_over(20, 9) && exchange.is_over(20, 10));
        assert!(Exchange::upload(7).is_over(0, 7));
    }
}
