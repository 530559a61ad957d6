//! Lists of parameters, as octets of a received chunk or as a slice of values to send.

use std::fmt;

use super::{Parameter, ParameterError};
use crate::tlv::Tlvs;
use crate::writer::{NoRoom, Writer};

/// The parameters of a chunk.
///
/// This example makes a list to send: `Parameters::from(&[Parameter::EcnCapable][..])`. The last parameter is
/// written without padding, because the chunk's length does not include this padding
/// (RFC 9260 section 3.2.1).
#[derive(Clone, Copy)]
pub struct Parameters<'a>(Source<'a>);

#[derive(Clone, Copy)]
enum Source<'a> {
    Wire(&'a [u8]),
    Values(&'a [Parameter<'a>]),
}

impl<'a> Parameters<'a> {
    /// The empty list.
    pub const EMPTY: Parameters<'a> = Parameters(Source::Wire(&[]));

    /// Makes a list from `bytes`, the parameters as they appear in a packet. Only [`iter`](Self::iter) checks
    /// the octets.
    pub const fn from_wire(bytes: &'a [u8]) -> Parameters<'a> {
        Parameters(Source::Wire(bytes))
    }

    /// Returns an iterator over the parameters, in order.
    ///
    /// A parameter with an invalid length yields an error and ends the iteration. A parameter with a valid
    /// length but a malformed value also yields an error. The iteration then continues with the next
    /// parameter.
    pub fn iter(&self) -> ParametersIter<'a> {
        match self.0 {
            Source::Wire(bytes) => ParametersIter(IterSource::Wire(Tlvs::new(bytes))),
            Source::Values(values) => ParametersIter(IterSource::Values(values.iter())),
        }
    }

    /// Returns the received parameters with uninterpreted values, for example to quote one in a report. For a
    /// list that was made for sending, the iterator is empty.
    pub fn tlvs(&self) -> Tlvs<'a> {
        match self.0 {
            Source::Wire(bytes) => Tlvs::new(bytes),
            Source::Values(_) => Tlvs::new(&[]),
        }
    }

    pub(crate) fn write(&self, out: &mut Writer<'_>) -> Result<(), NoRoom> {
        match self.0 {
            Source::Wire(bytes) => out.bytes(bytes),
            Source::Values(values) => values.iter().try_for_each(|parameter| {
                out.pad()?;
                parameter.write(out)
            }),
        }
    }
}

impl<'a> From<&'a [Parameter<'a>]> for Parameters<'a> {
    fn from(values: &'a [Parameter<'a>]) -> Parameters<'a> {
        Parameters(Source::Values(values))
    }
}

impl Default for Parameters<'_> {
    fn default() -> Self {
        Parameters::EMPTY
    }
}

impl PartialEq for Parameters<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Parameters<'_> {}

impl fmt::Debug for Parameters<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<'a> IntoIterator for Parameters<'a> {
    type Item = Result<Parameter<'a>, ParameterError>;
    type IntoIter = ParametersIter<'a>;

    fn into_iter(self) -> ParametersIter<'a> {
        self.iter()
    }
}

/// Iterator over the parameters of a chunk.
#[derive(Clone, Debug)]
pub struct ParametersIter<'a>(IterSource<'a>);

#[derive(Clone, Debug)]
enum IterSource<'a> {
    Wire(Tlvs<'a>),
    Values(std::slice::Iter<'a, Parameter<'a>>),
}

impl<'a> Iterator for ParametersIter<'a> {
    type Item = Result<Parameter<'a>, ParameterError>;

    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.0 {
            IterSource::Wire(tlvs) => tlvs.next().map(|tlv| Parameter::parse(tlv?)),
            IterSource::Values(values) => values.next().copied().map(Ok),
        }
    }
}
