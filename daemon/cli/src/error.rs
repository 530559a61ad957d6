//! Errors of commands, and their exit status.

use std::io::{self, ErrorKind};
use std::process::ExitCode;

use control::{ClientError, ErrorCode, FileError, Refusal, Response, write_response};

use ops::LineError;

/// The reason why a command failed. The text includes a remedy if one is known.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// The daemon refused the request.
    #[error("{}", .0.message)]
    Refused(Refusal),
    /// This user may not open the control socket, or the daemon gave no valid answer in time.
    #[error(transparent)]
    Client(ClientError),
    /// No daemon listens on the control socket.
    #[error("{0}")]
    NoDaemon(String),
    /// The command line is invalid.
    #[error("{0}")]
    Usage(String),
    /// Any other failure.
    #[error("{0}")]
    Failed(String),
    /// Names of missing requirements from the doctor's report, which was already printed.
    #[error("missing: {0}; see the remedies in the report")]
    SomethingMissing(String),
    /// The command of `sctpify run` could not be started.
    #[error("cannot run {program}: {error}")]
    NotRun {
        /// Name of the command.
        program: String,
        /// The system's error.
        error: io::Error,
    },
    /// The output could not be written.
    #[error("cannot write the output: {0}")]
    Output(io::Error),
}

impl From<ClientError> for CliError {
    fn from(error: ClientError) -> CliError {
        match error {
            e if e.is_no_daemon() => CliError::NoDaemon(e.to_string()),
            e => CliError::Client(e),
        }
    }
}

impl From<io::Error> for CliError {
    fn from(error: io::Error) -> CliError {
        CliError::Output(error)
    }
}

impl From<LineError> for CliError {
    fn from(error: LineError) -> CliError {
        match error {
            LineError::Io(e) => CliError::Output(e),
            e => CliError::Failed(e.to_string()),
        }
    }
}

impl From<FileError> for CliError {
    fn from(error: FileError) -> CliError {
        let is_denied =
            matches!(&error, FileError::Io { error, .. } if error.kind() == ErrorKind::PermissionDenied);
        let advice = if is_denied { ": run this as root" } else { "" };
        CliError::Failed(format!("{error}{advice}"))
    }
}

impl CliError {
    fn exit_code(&self) -> u8 {
        match self {
            CliError::Refused(_) | CliError::Client(_) | CliError::Failed(_) => 1,
            CliError::SomethingMissing(_) | CliError::Output(_) => 1,
            CliError::NotRun { error, .. } if error.kind() == ErrorKind::NotFound => 127,
            CliError::NotRun { .. } => 126,
            CliError::Usage(_) => 2,
            CliError::NoDaemon(_) => 3,
        }
    }

    fn refusal(&self) -> Refusal {
        let code = match self {
            CliError::Refused(refusal) => return refusal.clone(),
            CliError::NoDaemon(_) => ErrorCode::NoDaemon,
            CliError::Usage(_) => ErrorCode::BadRequest,
            CliError::Client(_) | CliError::Failed(_) | CliError::NotRun { .. } => ErrorCode::Failed,
            CliError::SomethingMissing(_) | CliError::Output(_) => ErrorCode::Failed,
        };
        Refusal { code, message: self.to_string() }
    }
}

/// Prints the error, if any, and returns the exit status. If the reader of the output closes the pipe early (`sctpify status | head -1`),
/// prints nothing and returns success. With `json`, does not print missing requirements again, because the report has them.
pub(crate) fn finish(result: Result<ExitCode, CliError>, json: bool) -> ExitCode {
    let error = match result {
        Ok(code) => return code,
        Err(error) => error,
    };
    if matches!(&error, CliError::Output(e) if e.kind() == ErrorKind::BrokenPipe) {
        return ExitCode::SUCCESS;
    }
    if json && matches!(error, CliError::SomethingMissing(_)) {
        return ExitCode::from(error.exit_code());
    }
    if json {
        let _ = write_response(&mut io::stdout().lock(), &Response::Error(error.refusal()));
    } else {
        eprintln!("error: {error}");
    }
    ExitCode::from(error.exit_code())
}
