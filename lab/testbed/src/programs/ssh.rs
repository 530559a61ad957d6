//! OpenSSH server and clients, with keys that are generated for the run.
//!
//! sshd needs the directory /run/sshd and an unlocked account. The test bed must not change the machine
//! itself, so sshd runs in its own mount namespace. Sessions from 127.0.0.1 have `SCTPIFY_LAB_FROM=loopback`
//! in their environment. The user is root, because only root can create a lab.

use crate::host::{Host, run_tool};
use crate::process::Process;
use anyhow::{Context, Result};
use std::ffi::OsStr;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Limit on the time until sshd listens.
const START_LIMIT: Duration = Duration::from_secs(10);
/// Script that creates the files that sshd needs, then executes sshd. $1 is the directory of keys and
/// configuration, $2 the path of sshd.
const START: &str = "mount -t tmpfs -o mode=755 tmpfs /run && mkdir -m 755 /run/sshd \
    && mount --bind \"$1/shadow\" /etc/shadow && exec \"$2\" -D -e -f \"$1/sshd_config\"";

/// Running sshd, with the keys and configuration for clients.
#[derive(Debug)]
pub struct Sshd {
    process: Process,
    dir: PathBuf,
}

impl Sshd {
    /// Generates keys and configuration, and starts sshd on port 22 of all addresses.
    ///
    /// # Errors
    /// When OpenSSH is missing, or sshd does not listen within 10 s.
    pub fn start(host: &Host) -> Result<Self> {
        let dir = host.dir()?.join("ssh");
        std::fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
        for key in ["host_key", "client_key"] {
            let file = dir.join(key).display().to_string();
            run_tool("ssh-keygen", &["-q", "-t", "ed25519", "-N", "", "-C", key, "-f", &file])?;
        }
        std::fs::copy(dir.join("client_key.pub"), dir.join("authorized_keys"))?;
        std::fs::write(dir.join("shadow"), "root:*:19000:0:99999:7:::\nsshd:!:19000::::::\n")?;
        std::fs::write(dir.join("sshd_config"), server_configuration(&dir))?;
        std::fs::write(dir.join("ssh_config"), client_configuration(&dir))?;
        let mut command = host.command("unshare");
        command.args(["--mount", "sh", "-c", START, "sshd"]).arg(&dir).arg("/usr/sbin/sshd");
        let mut process = host.spawn("sshd", command)?;
        let listening = |process: &Process| process.stderr().matches("Server listening on").count() >= 2;
        process.wait_until("sshd listening", START_LIMIT, listening)?;
        Ok(Self { process, dir })
    }

    /// Returns an `ssh` command on host `from` that runs `remote` on the server at `to`.
    pub fn ssh(&self, from: &Host, to: IpAddr, remote: &str) -> Command {
        let mut command = self.client(from, "ssh");
        command.arg(format!("root@{to}")).arg(remote);
        command
    }

    /// Returns an `scp` command that copies a file from host `from` to a path on the server.
    pub fn scp_to(&self, from: &Host, file: &Path, to: IpAddr, path: &Path) -> Command {
        let mut command = self.client(from, "scp");
        command.arg(file).arg(remote_path(to, path));
        command
    }

    /// Returns an `scp` command that copies a file from the server to a path on host `from`.
    pub fn scp_from(&self, from: &Host, to: IpAddr, path: &Path, file: &Path) -> Command {
        let mut command = self.client(from, "scp");
        command.arg(remote_path(to, path)).arg(file);
        command
    }

    /// Returns sshd's log so far. Lines on accepted logins contain the client's address and port.
    pub fn log(&self) -> String {
        self.process.stderr()
    }

    /// Ends sshd and its sessions.
    pub fn stop(self) {
        self.process.stop();
    }

    fn client(&self, from: &Host, program: impl AsRef<OsStr>) -> Command {
        let mut command = from.command(program);
        command.arg("-q").arg("-F").arg(self.dir.join("ssh_config"));
        command
    }
}

fn remote_path(to: IpAddr, path: &Path) -> String {
    match to {
        IpAddr::V4(v4) => format!("root@{v4}:{}", path.display()),
        IpAddr::V6(v6) => format!("root@[{v6}]:{}", path.display()),
    }
}

fn server_configuration(dir: &Path) -> String {
    let dir = dir.display();
    format!(
        "Port 22
HostKey {dir}/host_key
AuthorizedKeysFile {dir}/authorized_keys
PidFile none
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
UseDNS no
StrictModes no
PrintMotd no
MaxStartups 200
Subsystem sftp internal-sftp
Match Address 127.0.0.1
    SetEnv SCTPIFY_LAB_FROM=loopback
"
    )
}

fn client_configuration(dir: &Path) -> String {
    let dir = dir.display();
    format!(
        "Host *
    IdentityFile {dir}/client_key
    IdentitiesOnly yes
    BatchMode yes
    StrictHostKeyChecking accept-new
    UserKnownHostsFile {dir}/known_hosts
    GlobalKnownHostsFile /dev/null
    ConnectTimeout 20
"
    )
}
