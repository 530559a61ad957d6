//! Listening sockets.

use std::sync::Arc;

use crate::SctpStream;
use crate::error::Error;
use crate::shared::{Shared, WaitsOn};

/// A socket that accepts the associations of a port, each as an [`SctpStream`].
///
/// If the program drops the listener, the stack aborts each association that the program has not
/// accepted. Accepted associations continue.
pub struct SctpListener {
    shared: Arc<Shared>,
    port: u16,
}

impl SctpListener {
    pub(crate) fn new(shared: Arc<Shared>, port: u16) -> SctpListener {
        SctpListener { shared, port }
    }

    /// Waits for the next association and returns it. If the program drops the future, no
    /// association is lost.
    ///
    /// # Errors
    /// Returns [`Error::System`] or [`Error::StackEnded`] if the stack has ended.
    pub async fn accept(&self) -> Result<SctpStream, Error> {
        let on = WaitsOn::Port(self.port);
        let id = self.shared.wait(on, |state, wait| state.poll_accept(wait, self.port)).await?;
        Ok(SctpStream::new(Arc::clone(&self.shared), id))
    }

    /// Returns the SCTP port.
    pub fn local_port(&self) -> u16 {
        self.port
    }
}

impl Drop for SctpListener {
    fn drop(&mut self) {
        self.shared.with(|state| state.close_port(self.port));
    }
}

impl std::fmt::Debug for SctpListener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SctpListener").field("port", &self.port).finish_non_exhaustive()
    }
}
