//! Default protection of worlds. The environment variable `SIM_PROTECTED` makes all worlds seal their packets, so the same tests also
//! cover sealed packets. A test that reads or forges packets holds an [`InTheClear`], which prevents this.

use std::cell::Cell;

use sctp::ProtectionConfig;

use crate::keying::protection;

thread_local! {
    static HELD: Cell<u32> = const { Cell::new(0) };
}

/// While this exists, worlds that its thread makes protect packets only if their settings say so.
#[must_use = "it ends when it is dropped"]
pub struct InTheClear(());

impl InTheClear {
    /// Begins the time in the clear.
    pub fn begin() -> InTheClear {
        HELD.set(HELD.get() + 1);
        InTheClear(())
    }
}

impl Drop for InTheClear {
    fn drop(&mut self) {
        HELD.set(HELD.get() - 1);
    }
}

/// Returns the offer of protection of a new world.
pub(crate) fn offer() -> Option<ProtectionConfig> {
    let is_asked = HELD.get() == 0 && std::env::var_os("SIM_PROTECTED").is_some();
    is_asked.then(|| protection(false))
}
