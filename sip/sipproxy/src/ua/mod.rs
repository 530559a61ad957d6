//! `sctpify-ua`: the user agent of `sip`, with a transport, a clock and RTP. It registers, makes calls at a rate, answers calls, and
//! reports the delays as JSON.
//!
//! Begin with [`run`]. `driver` has the event loop, `many` registers many users, `rtp` has the audio, and `statistics` has the report.

mod args;
mod driver;
mod many;
mod rtp;
mod statistics;

pub use args::UaArgs;

use crate::error::SipError;

/// Rewords an error for this program, which is configured only on its command line.
fn in_flags(error: SipError) -> SipError {
    match error {
        SipError::Listen { transport, address, source } => {
            SipError::Flag { transport, address, source, flag: "--local" }
        }
        SipError::KernelSctp(found) => SipError::Usage(format!("{found}; or use --sctp-udp-port 9899")),
        other => other,
    }
}

/// Executes the command line, and prints statistics at the end.
///
/// # Errors
/// If the command line is invalid, an address cannot be used, or a registration or call failed.
pub fn run(args: &UaArgs) -> Result<(), SipError> {
    crate::begin_log(&args.log);
    if let Some(users) = args.users {
        let (told, failed) = many::run(args, users)?;
        println!("{told}");
        return if failed == 0 {
            Ok(())
        } else {
            Err(SipError::Calls(format!("{failed} of {users} users were not registered")))
        };
    }
    let statistics = driver::Driver::open(args)?.run()?;
    println!("{}", statistics.to_json());
    statistics.verdict(args).map_or(Ok(()), |fault| Err(SipError::Calls(fault)))
}
