//! Diameter nodes: two freeDiameter processes that are peers of each other, over SCTP only.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::host::Host;
use crate::process::Process;

/// Name of the program.
pub const PROGRAM: &str = "freeDiameterd";
/// Interval of the watchdog messages: the shortest one that RFC 3539 allows.
pub const WATCHDOG: Duration = Duration::from_secs(6);

/// Script that makes certificates, signed by an authority of the test. freeDiameter does not start without
/// certificates.
const CERTIFICATES: &str = "
set -e
openssl req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -subj /CN=ca.test -days 2
for n in alpha beta; do
    openssl req -newkey rsa:2048 -nodes -keyout $n.key -out $n.csr -subj /CN=$n.test
    openssl x509 -req -in $n.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out $n.crt -days 2
done";

/// The nodes `alpha.test` and `beta.test`, with their files in one directory.
#[derive(Debug, Clone)]
pub struct Diameter {
    dir: PathBuf,
}

impl Diameter {
    /// Creates the certificates in `dir`.
    ///
    /// # Errors
    /// When openssl is missing or fails.
    pub fn prepare(dir: &Path) -> Result<Diameter> {
        let output = Command::new("sh").args(["-c", CERTIFICATES]).current_dir(dir).output()?;
        ensure!(output.status.success(), "openssl: {}", String::from_utf8_lossy(&output.stderr).trim());
        Ok(Diameter { dir: dir.to_owned() })
    }

    /// Writes the configuration of node `own`. The node listens on `addresses`, and connects to node `other` at `to`.
    /// Returns the path of the configuration file.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn configure(&self, own: &str, other: &str, addresses: &[Ipv4Addr], to: Ipv4Addr) -> Result<PathBuf> {
        let dir = self.dir.display();
        let listen: String = addresses.iter().map(|address| format!("ListenOn = \"{address}\";\n")).collect();
        let seconds = WATCHDOG.as_secs();
        let text = format!(
            "Identity = \"{own}.test\"; Realm = \"test\"; SecPort = 0; No_TCP; No_IPv6;\n{listen}TwTimer = {seconds}; TcTimer = {seconds};
             TLS_Cred = \"{dir}/{own}.crt\", \"{dir}/{own}.key\"; TLS_CA = \"{dir}/ca.pem\";
             ConnectPeer = \"{other}.test\" {{ ConnectTo = \"{to}\"; No_TLS; No_TCP; }};\n"
        );
        let file = self.dir.join(format!("{own}.conf"));
        std::fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
        Ok(file)
    }

    /// Starts a node through `runner`. This command runs the program that its last arguments name.
    ///
    /// # Errors
    /// When the command cannot be started.
    pub fn start(&self, host: &Host, mut runner: Command, configuration: &Path) -> Result<Process> {
        runner.arg(PROGRAM).arg("-c").arg(configuration);
        host.spawn(PROGRAM, runner)
    }
}

/// Reports whether a node has reached the state OPEN with its peer.
pub fn is_open(node: &Process) -> bool {
    node.stdout().contains("-> 'STATE_OPEN'")
}

/// Returns the number of changes of the peer's state that the node has printed.
pub fn changes(node: &Process) -> usize {
    node.stdout().matches("'STATE_").count()
}
