//! Conversion of a received chunk into values, and of these values into a new chunk.

//! A parsed chunk holds its lists as received octets, which the writer only copies. The new chunk holds
//! its lists as values, so the writer must encode them.

use wire::*;

/// Returns the chunk as octets, without padding.
pub(crate) fn octets(chunk: &Chunk<'_>) -> Vec<u8> {
    let mut buf = vec![0xa5; 65_532];
    let mut out = Writer::new(&mut buf);
    chunk.write(&mut out).expect("the buffer is as large as a packet can be");
    out.written().to_vec()
}

/// Calls `then` with a chunk that is equal to `chunk` and whose lists are all slices of values. Returns
/// `None`, without a call, if a parameter or cause inside is malformed.
pub(crate) fn with_rebuilt<R>(chunk: &Chunk<'_>, then: impl FnOnce(&Chunk<'_>) -> R) -> Option<R> {
    Some(match *chunk {
        Chunk::Init(init) => {
            with_parameters(init.parameters, |parameters| then(&Chunk::Init(Init { parameters, ..init })))?
        }
        Chunk::InitAck(init) => {
            with_parameters(init.parameters, |parameters| then(&Chunk::InitAck(Init { parameters, ..init })))?
        }
        Chunk::Sack(sack) => {
            let (gaps, duplicates) = (values(sack.gaps), values(sack.duplicates));
            then(&Chunk::Sack(Sack {
                gaps: List::from(&gaps[..]),
                duplicates: List::from(&duplicates[..]),
                ..sack
            }))
        }
        Chunk::Abort(abort) => {
            with_causes(abort.causes, |causes| then(&Chunk::Abort(Abort { causes, ..abort })))?
        }
        Chunk::Error(error) => {
            with_causes(error.causes, |causes| then(&Chunk::Error(ErrorChunk { causes })))?
        }
        Chunk::Asconf(asconf) => with_parameters(asconf.parameters, |parameters| {
            then(&Chunk::Asconf(Asconf { parameters, ..asconf }))
        })?,
        Chunk::AsconfAck(ack) => with_parameters(ack.parameters, |parameters| {
            then(&Chunk::AsconfAck(AsconfAck { parameters, ..ack }))
        })?,
        Chunk::ReConfig(re_config) => with_parameters(re_config.parameters, |parameters| {
            then(&Chunk::ReConfig(ReConfig { parameters }))
        })?,
        Chunk::ForwardTsn(forward) => {
            let streams = values(forward.streams);
            then(&Chunk::ForwardTsn(ForwardTsn { streams: List::from(&streams[..]), ..forward }))
        }
        Chunk::IForwardTsn(forward) => {
            let streams = values(forward.streams);
            then(&Chunk::IForwardTsn(IForwardTsn { streams: List::from(&streams[..]), ..forward }))
        }
        _ => then(chunk),
    })
}

fn values<T: ListItem>(list: List<'_, T>) -> Vec<T> {
    list.iter().collect()
}

fn with_parameters<R>(parameters: Parameters<'_>, then: impl FnOnce(Parameters<'_>) -> R) -> Option<R> {
    let parameters: Vec<_> = parameters.iter().collect::<Result<_, _>>().ok()?;
    // Only an `ErrorCause` parameter contains a list that is copied as octets.
    if parameters.iter().any(|parameter| !causes_inside_are_whole(parameter)) {
        return None;
    }
    Some(then(Parameters::from(&parameters[..])))
}

fn causes_inside_are_whole(parameter: &Parameter<'_>) -> bool {
    match parameter {
        Parameter::ErrorCause { causes, .. } => causes.iter().all(|cause| cause.is_ok()),
        _ => true,
    }
}

fn with_causes<R>(causes: Causes<'_>, then: impl FnOnce(Causes<'_>) -> R) -> Option<R> {
    let causes: Vec<_> = causes.iter().collect::<Result<_, _>>().ok()?;
    Some(then(Causes::from(&causes[..])))
}
