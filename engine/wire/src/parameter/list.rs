//! A run of parameters: octets of a received chunk, or a slice of values to be sent.

use std::fmt;

use super::{Parameter, ParameterError};
use crate::tlv::Tlvs;
use crate::writer::{NoRoom, Writer};

/// The parameters of a chunk.
///
/// To send some: `Parameters::from(&[Parameter::EcnCapable][..])`. The last one's padding is not part of the
/// chunk's length (RFC 9260 section 3.2.1), so none is written behind it.
#[derive(Clone, Copy)]
pub struct Parameters<'a>(Source<'a>);

#[derive(Clone, Copy)]
enum Source<'a> {
    Wire(&'a [u8]),
    Values(&'a [Parameter<'a>]),
}

impl<'a> Parameters<'a> {
    /// No parameters.
    pub const EMPTY: Parameters<'a> = Parameters(Source::Wire(&[]));

    /// The parameters in `bytes`, as a packet carries them. Nothing is checked until they are walked.
    pub const fn from_wire(bytes: &'a [u8]) -> Parameters<'a> {
        Parameters(Source::Wire(bytes))
    }

    /// The parameters in order.
    ///
    /// A length that cannot be ends the walk with an error. A parameter whose frame is good but whose value is
    /// malformed is an error too, and the walk goes on behind it.
    pub fn iter(&self) -> ParametersIter<'a> {
        match self.0 {
            Source::Wire(bytes) => ParametersIter(IterSource::Wire(Tlvs::new(bytes))),
            Source::Values(values) => ParametersIter(IterSource::Values(values.iter())),
        }
    }

    /// The parameters as received, cut but not read: for quoting one in a report. A list made for sending has
    /// none.
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
