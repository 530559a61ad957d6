//! A run of error causes: octets of a received chunk, or a slice of values to be sent.

use std::fmt;

use super::{Cause, CauseError};
use crate::tlv::Tlvs;
use crate::writer::{NoRoom, Writer};

/// The error causes of an ABORT or ERROR chunk, or of an ASCONF answer.
///
/// To send some: `Causes::from(&[Cause::OutOfResource][..])`.
#[derive(Clone, Copy)]
pub struct Causes<'a>(Source<'a>);

#[derive(Clone, Copy)]
enum Source<'a> {
    Wire(&'a [u8]),
    Values(&'a [Cause<'a>]),
}

impl<'a> Causes<'a> {
    /// No causes.
    pub const EMPTY: Causes<'a> = Causes(Source::Wire(&[]));

    /// The causes in `bytes`, as a packet carries them. Nothing is checked until they are walked.
    pub const fn from_wire(bytes: &'a [u8]) -> Causes<'a> {
        Causes(Source::Wire(bytes))
    }

    /// The causes in order.
    ///
    /// A length that cannot be ends the walk with an error. A cause whose frame is good but whose value is
    /// malformed is an error too, and the walk goes on behind it.
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
