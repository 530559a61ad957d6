//! The daemon's sign of life in the kernel: the only element of the set `alive`. The daemon must renew this element.
//!
//! The kernel queues SYNs while the element exists. A daemon that is stopped, or hangs, does not renew the element. The element
//! expires after [`LAPSE_MS`]. New connections then bypass the queue as plain TCP. The expiry needs no process, so it also works
//! if all processes are stopped.

use netlink_packet_core::NLM_F_CREATE;

use super::host::SET_PART;
use super::{Batch, DATA_VALUE, DELSETELEM, LIST_ELEMENT, NEWSET, NEWSETELEM, Refusal, TABLE};
use crate::netlink::{Message, Netlink};

/// The set's name.
pub(super) const ALIVE: &str = "alive";
/// Lifetime of a renewed sign of life, in milliseconds.
pub(crate) const LAPSE_MS: u64 = 2000;
/// Lifetime of the first sign of life, in milliseconds. It bridges the time until the daemon's event loop runs.
const START_MS: u64 = 20_000;

const PART: &str = "sign of life in an nftables set";
/// IPPROTO_TCP: the protocol of queued packets, and the key of the element.
const TCP: u8 = 6;

/// Adds the set and the first sign of life.
pub(super) fn add_alive_set(batch: &mut Batch<'_>) {
    const TIMEOUT: u32 = 0x10;
    const INET_PROTO: u32 = 12;
    const ID: u32 = 3;
    batch.add(SET_PART, NEWSET, NLM_F_CREATE, |message| {
        message.string(1, TABLE);
        message.string(2, ALIVE);
        message.number(3, TIMEOUT);
        message.number(4, INET_PROTO);
        message.number(5, size_of_val(&TCP) as u32);
        message.nested(9, |description| description.number(1, 1));
        message.number(10, ID);
    });
    add_element(batch, START_MS);
}

/// Declares for another [`LAPSE_MS`] that the queue is served.
pub(crate) fn renew(owner: &mut Netlink) -> Result<(), Refusal> {
    let mut batch = Batch::new(owner);
    batch.add(PART, DELSETELEM, 0, element);
    add_element(&mut batch, LAPSE_MS);
    match batch.commit() {
        // The element has expired.
        Err(refusal) if refusal.error.raw_os_error() == Some(libc::ENOENT) => {
            let mut batch = Batch::new(owner);
            add_element(&mut batch, LAPSE_MS);
            batch.commit()
        }
        outcome => outcome,
    }
}

fn add_element(batch: &mut Batch<'_>, ms: u64) {
    batch.add(PART, NEWSETELEM, NLM_F_CREATE, |message| element_for(message, Some(ms)));
}

fn element(message: &mut Message) {
    element_for(message, None);
}

fn element_for(message: &mut Message, ms: Option<u64>) {
    message.string(1, TABLE);
    message.string(2, ALIVE);
    message.nested(3, |elements| {
        elements.nested(LIST_ELEMENT, |element| {
            element.nested(1, |value| value.attribute(DATA_VALUE, &[TCP]));
            if let Some(ms) = ms {
                element.attribute(4, &ms.to_be_bytes());
            }
        });
    });
}
