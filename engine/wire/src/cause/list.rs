//! Lists of error causes, as octets of a received chunk or as a slice of values to send.

use std::fmt;

use super::{Cause, CauseError};
use crate::tlv::Tlvs;
use crate::writer::{NoRoom, Writer};

/// The error causes of an ABORT or ERROR chunk, or of an ASCONF-ACK.
///
/// This example makes a list to send: `Causes::from(&[Cause::OutOfResource][..])`.
#[derive(Clone, Copy)]
pub struct Causes<'a>(Source<'a>);

#[derive(Clone, Copy)]
enum Source<'a> {
    Wire(&'a [u8]),
    Values(&'a [Cause<'a>]),
}

impl<'a> Causes<'a> {
    /// A list without causes.
    pub const EMPTY: Causes<'a> = Causes(Source::Wire(&[]));

    /// Makes a list from `bytes`, the causes as they appear in a packet. Only [`iter`](Self::iter) checks the
    /// octets.
    pub const fn from_wire(bytes: &'a [u8]) -> Causes<'a> {
        Causes(Source::Wire(bytes))
    }

    /// Returns an iterator over the causes, in order.
    ///
    /// A cause with an invalid length yields an error and ends the iteration. A cause with a valid length but
    /// a malformed value also yields an error. The iteration then continues with the next cause.
    pub fn iter(&self) -> CausesIter<'a> {
        match self.0 {
            Source::Wire(bytes) => CausesIter(IterSource::Wire(Tlvs::new(bytes))),
            Source::Values(values) => CausesIter(IterSource::Values(values.iter())),
        }
    }

    pub(crate) fn write(&self, out: &mut Writer<'_>) -> Result<(), NoRoom> {
        match self.0 {
            Source::Wire(bytes) => out.bytes(bytes),
            Source::Values(values) => values.iter().try_for_each(|cause| {
                out.pad()?;
                cause.write(out)
            }),
        }
    }
}

impl<'a> From<&'a [Cause<'a>]> for Causes<'a> {
    fn from(values: &'a [Cause<'a>]) -> Causes<'a> {
        Causes(Source::Values(values))
    }
}

impl Default for Causes<'_> {
    fn default() -> Self {
        Causes::EMPTY
    }
}

impl PartialEq for Causes<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Causes<'_> {}

impl fmt::Debug for Causes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<'a> IntoIterator for Causes<'a> {
    type Item = Result<Cause<'a>, CauseError>;
    type IntoIter = CausesIter<'a>;

    fn into_iter(self) -> CausesIter<'a> {
        self.iter()
    }
}

/// Iterator over the causes of a chunk.
#[derive(Clone, Debug)]
pub struct CausesIter<'a>(IterSource<'a>);

#[derive(Clone, Debug)]
enum IterSource<'a> {
    Wire(Tlvs<'a>),
    Values(std::slice::Iter<'a, Cause<'a>>),
}

impl<'a> Iterator for CausesIter<'a> {
    type Item = Result<Cause<'a>, CauseError>;

    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.0 {
            IterSource::Wire(tlvs) => tlvs.next().map(|tlv| Cause::parse(tlv?)),
            IterSource::Values(values) => values.next().copied().map(Ok),
        }
    }
}
