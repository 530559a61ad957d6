//! One command's exchange with the daemon.

use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use control::{Client, ErrorCode, Refusal, Request, Response, write_response};

use crate::CliError;

/// Time limit on the daemon's answer.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// The daemon's control socket, and the output format of answers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Session<'a> {
    pub(crate) control: &'a Path,
    pub(crate) json: bool,
}

impl Session<'_> {
    /// Sends a request to the daemon and returns its answer. A refusal is an error.
    pub(crate) fn ask(&self, request: &Request) -> Result<Response, CliError> {
        let mut client = Client::connect(self.control, ANSWER_TIMEOUT)?;
        match client.call(request)? {
            Response::Error(refusal) => Err(CliError::Refused(refusal)),
            answer => Ok(answer),
        }
    }

    /// Prints an answer: as a line of JSON, or as text with `show`.
    pub(crate) fn print(
        &self,
        answer: &Response,
        show: impl FnOnce(&mut dyn Write, &Response) -> io::Result<()>,
    ) -> Result<(), CliError> {
        let mut out = io::stdout().lock();
        if self.json {
            write_response(&mut out, answer)?;
        } else {
            show(&mut out, answer)?;
        }
        Ok(())
    }
}

/// Returns the error for an answer of an unexpected kind.
pub(crate) fn unexpected(answer: &Response) -> CliError {
    let message = format!("the daemon sent an unexpected answer: {answer:?}");
    CliError::Refused(Refusal { code: ErrorCode::Failed, message })
}
