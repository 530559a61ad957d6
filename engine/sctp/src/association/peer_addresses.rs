//! The peer's addresses, including those without a path.

use std::net::IpAddr;

use smallvec::SmallVec;

use crate::memory::list;

/// All addresses of the peer, each once. The address of the handshake comes first.
#[derive(Clone, Debug)]
pub(super) struct PeerAddresses {
    list: SmallVec<[IpAddr; 4]>,
    /// Set if the list has changed and the endpoint must update its index.
    is_changed: bool,
}

impl PeerAddresses {
    /// Creates the list from the source address of the handshake, and from the addresses that the handshake lists.
    //= rfc9260#5.1.2-1 5.1.2-4
    pub(super) fn new(first: IpAddr, others: &[IpAddr]) -> Self {
        let mut list = SmallVec::from_slice(&[first]);
        list.extend(others.iter().copied().filter(|address| *address != first));
        PeerAddresses { list, is_changed: false }
    }

    pub(super) fn as_slice(&self) -> &[IpAddr] {
        &self.list
    }

    pub(super) fn has(&self, address: IpAddr) -> bool {
        self.list.contains(&address)
    }

    pub(super) fn add(&mut self, address: IpAddr) {
        self.list.push(address);
        self.is_changed = true;
    }

    pub(super) fn remove(&mut self, address: IpAddr) {
        self.list.retain(|a| *a != address);
        self.is_changed = true;
    }

    #[inline]
    pub(super) fn is_changed(&self) -> bool {
        self.is_changed
    }

    /// Reports whether the list has changed since the last call.
    pub(super) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.is_changed)
    }

    /// Returns the heap bytes of the list.
    pub(super) fn memory(&self) -> usize {
        list::<IpAddr>(if self.list.spilled() { self.list.capacity() } else { 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_the_handshake_is_listed_once_and_first() {
        let [one, two]: [IpAddr; 2] = [[192, 0, 2, 1].into(), [192, 0, 2, 2].into()];
        let mut addresses = PeerAddresses::new(one, &[two, one]);
        assert_eq!(addresses.as_slice(), [one, two]);
        assert!(!addresses.take_changed());
        addresses.remove(one);
        assert!(addresses.take_changed() && !addresses.take_changed() && !addresses.has(one));
    }
}
