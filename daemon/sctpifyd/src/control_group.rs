//! Gives the control socket to the group `sctpify`, if the host has this group. The group also gets the socket's directory, if other users
//! have no access to it. Without the group, only root can reach the socket.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::Path;

use nix::unistd::{Gid, Group, geteuid};

/// Name of the group.
const GROUP: &str = "sctpify";
/// Mode bits for the access of other users.
const OTHERS: u32 = 0o007;

/// Gives the new socket to the group. A failure affects only the group's members, because root still has access.
pub(crate) fn hand_over(socket: &Path) {
    match Group::from_name(GROUP) {
        Ok(Some(group)) => {
            if let Err(error) = give(socket, group.gid) {
                tracing::warn!(%error, group = GROUP, "the control socket stays owned by root: its group has no access");
            }
        }
        Ok(None) => {}
        Err(error) => tracing::warn!(%error, group = GROUP, "cannot look up the group"),
    }
}

fn give(socket: &Path, group: Gid) -> io::Result<()> {
    let directory = socket.parent().unwrap_or(Path::new("/"));
    let status = fs::metadata(directory)?;
    // A directory that is open to other users may serve other programs, so its group stays unchanged.
    if status.uid() == geteuid().as_raw() && status.mode() & OTHERS == 0 {
        chown(directory, None, Some(group.as_raw()))?;
    }
    chown(socket, None, Some(group.as_raw()))
}
