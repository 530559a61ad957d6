//! Listeners.

use std::sync::Arc;

use crate::SctpStream;
use crate::error::Error;
use crate::shared::{Shared, WaitsOn};

/// Accepts associations of a port, each as an [`SctpStream`].
///
/// When it is dropped, associations that nobody has accepted are aborted. Those that were accepted go on.
pub struct SctpListener {
    shared: Arc<Shared>,
    port: u16,
}

impl SctpListener {
    pub(crate) fn new(shared: Arc<Shared>, port: u16) -> SctpListener {
        SctpListener { shared, port }
    }

    /// Returns the next association, once there is one. Cancelling it loses none.
    ///
    /// # Errors
    /// [`Error::System`], [`Error::StackEnded`]: the stack is at an end.
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
