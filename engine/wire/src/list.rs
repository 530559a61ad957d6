//! Lists of fixed-size entries: gap blocks, duplicate TSNs, stream numbers, HMAC identifiers.
//!
//! A [`List`] holds either octets of a received packet or a slice of values to be sent. Both forms have the
//! same interface.

use std::fmt;

use crate::writer::{NoRoom, Writer};
use crate::{StreamId, Tsn};

/// An entry of a [`List`].
pub trait ListItem: Copy + PartialEq + fmt::Debug {
    /// Length of an entry on the wire, in octets.
    const LEN: usize;
    /// Reads an entry from [`ListItem::LEN`] octets. Returns `None` if `bytes` is shorter.
    fn read(bytes: &[u8]) -> Option<Self>;
    /// Writes the entry.
    fn write(self, out: &mut Writer<'_>) -> Result<(), NoRoom>;
}

/// A list of entries, received in a packet or to be sent.
#[derive(Clone, Copy)]
pub struct List<'a, T>(Source<'a, T>);

#[derive(Clone, Copy)]
enum Source<'a, T> {
    Wire(&'a [u8]),
    Values(&'a [T]),
}

impl<'a, T: ListItem> List<'a, T> {
    /// The empty list.
    pub const EMPTY: List<'a, T> = List(Source::Wire(&[]));

    /// Makes a list from received octets. Returns `None` if their number is not a multiple of
    /// [`ListItem::LEN`].
    pub(crate) fn from_wire(bytes: &'a [u8]) -> Option<List<'a, T>> {
        bytes.len().is_multiple_of(T::LEN).then_some(List(Source::Wire(bytes)))
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        match self.0 {
            Source::Wire(bytes) => bytes.len() / T::LEN,
            Source::Values(values) => values.len(),
        }
    }

    /// Reports whether the list has no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns an iterator over the entries, in order.
    pub fn iter(&self) -> ListIter<'a, T> {
        ListIter(self.0)
    }

    pub(crate) fn write(&self, out: &mut Writer<'_>) -> Result<(), NoRoom> {
        match self.0 {
            Source::Wire(bytes) => out.bytes(bytes),
            Source::Values(values) => values.iter().try_for_each(|value| value.write(out)),
        }
    }
}

impl<'a, T: ListItem> From<&'a [T]> for List<'a, T> {
    fn from(values: &'a [T]) -> List<'a, T> {
        List(Source::Values(values))
    }
}

impl<T: ListItem> Default for List<'_, T> {
    fn default() -> Self {
        List::EMPTY
    }
}

impl<T: ListItem> PartialEq for List<'_, T> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl<T: ListItem + Eq> Eq for List<'_, T> {}

impl<T: ListItem> fmt::Debug for List<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<'a, T: ListItem> IntoIterator for List<'a, T> {
    type Item = T;
    type IntoIter = ListIter<'a, T>;

    fn into_iter(self) -> ListIter<'a, T> {
        self.iter()
    }
}

/// Iterator over a [`List`].
#[derive(Clone)]
pub struct ListIter<'a, T>(Source<'a, T>);

impl<T: ListItem> Iterator for ListIter<'_, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        match &mut self.0 {
            Source::Wire(bytes) => {
                let (head, rest) = bytes.split_at_checked(T::LEN)?;
                *bytes = rest;
                T::read(head)
            }
            Source::Values(values) => {
                let (head, rest) = values.split_first()?;
                *values = rest;
                Some(*head)
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let len = List(self.0).len();
        (len, Some(len))
    }
}

impl<T: ListItem> ExactSizeIterator for ListIter<'_, T> {}

impl ListItem for u16 {
    const LEN: usize = 2;
    fn read(bytes: &[u8]) -> Option<u16> {
        bytes.first_chunk().copied().map(u16::from_be_bytes)
    }
    fn write(self, out: &mut Writer<'_>) -> Result<(), NoRoom> {
        out.u16(self)
    }
}

impl ListItem for StreamId {
    const LEN: usize = 2;
    fn read(bytes: &[u8]) -> Option<StreamId> {
        u16::read(bytes).map(StreamId)
    }
    fn write(self, out: &mut Writer<'_>) -> Result<(), NoRoom> {
        out.u16(self.0)
    }
}

impl ListItem for Tsn {
    const LEN: usize = 4;
    fn read(bytes: &[u8]) -> Option<Tsn> {
        bytes.first_chunk().copied().map(u32::from_be_bytes).map(Tsn)
    }
    fn write(self, out: &mut Writer<'_>) -> Result<(), NoRoom> {
        out.u32(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn received_and_made_lists_compare_by_their_entries() {
        let made = [Tsn(1), Tsn(0x0203_0405)];
        let received = List::<Tsn>::from_wire(&[0, 0, 0, 1, 2, 3, 4, 5]).unwrap();
        assert_eq!(received, List::from(&made[..]));
        assert_eq!(received.len(), 2);
        assert_ne!(received, List::from(&made[..1]));
    }

    #[test]
    fn octets_that_do_not_divide_into_entries_are_no_list() {
        assert!(List::<Tsn>::from_wire(&[0; 7]).is_none());
    }
}
