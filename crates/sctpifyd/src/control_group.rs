//! The group whose members may look: the control socket, and its directory where that is closed to others, belong to the
//! group `sctpify` if the host has one. Without it only root gets as far as the socket.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::Path;

use nix::unistd::{Gid, Group, geteuid};

/// The group's name.
const GROUP: &str = "sctpify";
/// Access of others, in a file's mode.
const OTHERS: u32 = 0o007;

/// Gives the socket that was just made to the group. Without that all works for root.
pub(crate) fn hand_over(socket: &Path) {
    match Group::from_name(GROUP) {
        Ok(Some(group)) => {
            if let Err(error) = give(socket, group.gid) {
                tracing::warn!(%error, group = GROUP, "the control socket stays root's: its group cannot look");
            }
        }
        Ok(None) => {}
        Err(error) => tracing::warn!(%error, group = GROUP, "the group cannot be looked up"),
    }
}

fn give(socket: &Path, group: Gid) -> io::Result<()> {
    let directory = socket.parent().unwrap_or(Path::new("/"));
    let status = fs::metadata(directory)?;
    // One that others may enter is not ours alone, and needs no group.
    if status.uid() == geteuid().as_raw() && status.mode() & OTHERS == 0 {
        chown(directory, None, Some(group.as_raw()))?;
    }
    chown(socket, None, Some(group.as_raw()))
}
