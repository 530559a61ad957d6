//! Index of a listener's associations by the peers' addresses.

use std::collections::BTreeMap;
use std::net::SocketAddr;

/// The associations that lead to each address, by their numbers. The oldest entry of an address comes first.
#[derive(Debug, Default)]
pub(super) struct AddressIndex(BTreeMap<SocketAddr, Vec<usize>>);

impl AddressIndex {
    /// Adds an association to an address. Returns false if the address has it already.
    pub(super) fn add(&mut self, address: SocketAddr, number: usize) -> bool {
        let numbers = self.0.entry(address).or_default();
        let is_new = !numbers.contains(&number);
        if is_new {
            numbers.push(number);
        }
        is_new
    }

    /// Removes an association from an address.
    pub(super) fn remove(&mut self, address: SocketAddr, number: usize) {
        if let Some(numbers) = self.0.get_mut(&address) {
            numbers.retain(|other| *other != number);
            if numbers.is_empty() {
                self.0.remove(&address);
            }
        }
    }

    /// Returns the associations that lead to an address.
    pub(super) fn of(&self, address: SocketAddr) -> &[usize] {
        self.0.get(&address).map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_leads_to_its_other_association_when_the_first_one_ends() {
        let address: SocketAddr = "192.0.2.1:5060".parse().unwrap();
        let mut index = AddressIndex::default();
        assert!(index.add(address, 1) && index.add(address, 2) && !index.add(address, 2));
        assert_eq!(index.of(address), [1, 2]);
        index.remove(address, 1);
        assert_eq!(index.of(address), [2]);
        index.remove(address, 2);
        assert!(index.of(address).is_empty() && index.0.is_empty());
    }
}
