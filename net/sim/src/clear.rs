//! Default protection of worlds. If the environment variable `SIM_PROTECTED` is set, all worlds seal their packets, so the same
//! tests also cover sealed packets. A test that reads or forges packets holds an [`InTheClear`], which disables this default.

use std::cell::Cell;

use sctp::ProtectionConfig;

use crate::keying::protection;

thread_local! {
    static HELD: Cell<u32> = const { Cell::new(0) };
}

/// While a thread holds this value, its new worlds protect packets only if their settings offer protection.
#[must_use = "it ends when it is dropped"]
pub struct InTheClear(());

impl InTheClear {
    /// Disables the default protection until the returned value is dropped.
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

/// Returns the protection that a new world offers by default.
pub(crate) fn offer() -> Option<ProtectionConfig> {
    let is_asked = HELD.get() == 0 && std::env::var_os("SIM_PROTECTED").is_some();
    is_asked.then(|| protection(false))
}
