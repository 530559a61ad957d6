//! Detects whether the kernel's own SCTP is active.

use std::path::{Path, PathBuf};

/// Signs of a kernel with SCTP. The first path exists while the protocol is registered in the thread's network namespace. The
/// second path exists while the module `sctp` is loaded.
const SIGNS: [&str; 2] = ["/proc/thread-self/net/sctp", "/sys/module/sctp"];

/// Report that the kernel's own SCTP is active and answers the packets of [`RawCarrier`](crate::RawCarrier)'s peers.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the kernel's own SCTP is loaded ({}): it answers packets for our associations with ABORT. \
     Unload it (modprobe -r sctp) and keep it out (echo 'install sctp /bin/false' > /etc/modprobe.d/no-sctp.conf), \
     or use UDP encapsulation only", sign.display()
)]
pub struct KernelSctp {
    /// The path that shows the kernel's SCTP.
    pub sign: PathBuf,
}

/// Returns a report if the kernel's own SCTP is active. The report's text names the remedy.
///
/// Native SCTP (protocol 132) and the kernel's stack exclude each other on one host. SCTP in UDP is not affected, unless the
/// sysctl `net.sctp.udp_port` is set to the carrier's UDP port.
pub fn kernel_sctp() -> Option<KernelSctp> {
    find(&SIGNS)
}

fn find(signs: &[&str]) -> Option<KernelSctp> {
    signs.iter().find(|sign| Path::new(sign).exists()).map(|sign| KernelSctp { sign: sign.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_existing_sign_of_kernel_sctp_is_reported_with_a_remedy() {
        let found = find(&["/nonexistent", "/proc/self", "/"]).unwrap();
        assert_eq!(found.sign, Path::new("/proc/self"));
        assert!(found.to_string().contains("modprobe -r sctp"));
        assert_eq!(find(&["/nonexistent"]), None);
    }
}
