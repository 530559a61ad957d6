//! Limits the concurrent requests of a listener, in total and from one client.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};

/// Limit on concurrent requests.
const SERVED_MAX: usize = 16;
/// Limit on concurrent requests from one IPv4 address or one IPv6 prefix of 64 bits, except loopback addresses.
const SERVED_OF_CLIENT_MAX: usize = 4;
/// Bits of an IPv6 address that identify a client.
const CLIENT_PREFIX: u128 = !0 << 64;

/// The number of concurrent requests of each client.
#[derive(Clone, Default)]
pub(super) struct Slots(Arc<Mutex<BTreeMap<IpAddr, usize>>>);

/// A place for a request. Dropping this value frees the place.
pub(super) struct Slot {
    slots: Slots,
    client: IpAddr,
}

impl Slots {
    /// Takes a place for a request of the client at an address; `None` if a limit is reached.
    pub(super) fn take(&self, from: IpAddr) -> Option<Slot> {
        let client = client_of(from.to_canonical());
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let total: usize = counts.values().sum();
        let count = counts.get(&client).copied().unwrap_or_default();
        if total >= SERVED_MAX || (count >= SERVED_OF_CLIENT_MAX && !client.is_loopback()) {
            return None;
        }
        counts.insert(client, count + 1);
        Some(Slot { slots: self.clone(), client })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut counts = self.slots.0.lock().unwrap_or_else(PoisonError::into_inner);
        match counts.get_mut(&self.client) {
            Some(count) if *count > 1 => *count -= 1,
            _ => _ = counts.remove(&self.client),
        }
    }
}

/// Returns the address that identifies a client: the first address of the /64 prefix of an IPv6 address, or the address itself.
fn client_of(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(v6) if !v6.is_loopback() => Ipv6Addr::from_bits(v6.to_bits() & CLIENT_PREFIX).into(),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(slots: &Slots, address: &str) -> Option<Slot> {
        slots.take(address.parse().unwrap())
    }

    #[test]
    fn one_client_cannot_take_all_places() {
        let slots = Slots::default();
        let mut taken: Vec<Slot> = (0..4).map_while(|_| take(&slots, "192.0.2.1")).collect();
        assert_eq!(taken.len(), 4);
        assert!(take(&slots, "192.0.2.1").is_none() && take(&slots, "::ffff:192.0.2.1").is_none());
        taken.extend((1..9).map_while(|n| take(&slots, &format!("2001:db8::{n}"))));
        assert_eq!(taken.len(), 8, "addresses of one prefix are one client");
        taken.truncate(3);
        assert!(take(&slots, "192.0.2.1").is_some(), "a place is free again");
    }

    #[test]
    fn sixteen_requests_are_served_at_once() {
        let slots = Slots::default();
        let taken: Vec<Slot> = (0..20).map_while(|_| take(&slots, "127.0.0.1")).collect();
        assert_eq!(taken.len(), 16);
        assert!(take(&slots, "192.0.2.1").is_none());
        drop(taken);
        assert!(slots.0.lock().unwrap().is_empty());
    }
}
