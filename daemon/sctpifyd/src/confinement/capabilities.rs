//! Drops capabilities permanently.

use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};

/// Permanently drops all capabilities except `kept`. Returns the names of the remaining capabilities. The calling thread may lack some of
/// `kept`.
pub(super) fn keep(kept: CapabilitySet) -> Result<String, String> {
    let failed = |what: &'static str| move |error: rustix::io::Errno| format!("{what}: {error}");
    set_no_new_privs(true).map_err(failed("cannot set no_new_privs"))?;
    let now = capabilities(None).map_err(failed("cannot read capabilities"))?;
    if now.effective.contains(CapabilitySet::SETPCAP) {
        for other in CapabilitySet::all() - kept {
            // The call fails for a capability that the kernel does not know. Such a capability cannot be regained anyway.
            let _ = remove_capability_from_bounding_set(other);
        }
    }
    // Kernels before 4.3 have no ambient set.
    let _ = clear_ambient_capability_set();
    let left = now.permitted & kept;
    let sets = CapabilitySets { effective: left, permitted: left, inheritable: CapabilitySet::empty() };
    set_capabilities(None, sets).map_err(failed("cannot drop capabilities"))?;
    let names: Vec<String> = left.iter_names().map(|(name, _)| name.to_lowercase()).collect();
    Ok(if names.is_empty() { "none".to_owned() } else { names.join(", ") })
}
