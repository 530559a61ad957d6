//! Icecast, a streaming server for audio. ffmpeg is the source: it plays a file to Icecast in real time.

use crate::host::Host;
use crate::process::Process;
use anyhow::{Context, Result};
use std::net::IpAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Path of the server in Debian.
pub const PROGRAM: &str = "/usr/bin/icecast2";
/// Limit on the time until Icecast listens, and on the time until a source is audible.
const START_LIMIT: Duration = Duration::from_secs(10);

/// A running Icecast.
#[derive(Debug)]
pub struct Icecast {
    host: Host,
    process: Process,
    port: u16,
}

impl Icecast {
    /// Starts Icecast on these ports of all IPv4 addresses of the host.
    ///
    /// # Errors
    /// When Icecast is missing, or does not listen within 10 s.
    pub fn start(host: &Host, ports: &[u16]) -> Result<Self> {
        Self::start_by(host, ports, &[])
    }

    /// Like [`Icecast::start`], through a wrapper command such as `mptcpize run`.
    ///
    /// # Errors
    /// Like [`Icecast::start`].
    pub fn start_by(host: &Host, ports: &[u16], runner: &[&str]) -> Result<Self> {
        let dir = host.dir()?.join("icecast");
        std::fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
        std::fs::write(dir.join("icecast.xml"), configuration(&dir, ports))?;
        // Icecast refuses to run as root. An unprivileged user suffices, because Icecast uses only its own
        // directory.
        let mut command = host.command("unshare");
        command
            .args(["--user", "--map-user=65534"])
            .args(runner)
            .args([PROGRAM, "-c"])
            .arg(dir.join("icecast.xml"));
        let process = host.spawn("icecast", command)?;
        let port = *ports.first().context("a server needs a port")?;
        let mut icecast = Self { host: host.clone(), process, port };
        let filter = format!("sport = :{port}");
        icecast.process.wait_until("icecast listening", START_LIMIT, |_| {
            host.tool("ss", &["-Hltn", &filter]).is_ok_and(|sockets| !sockets.is_empty())
        })?;
        Ok(icecast)
    }

    /// Plays an Ogg file in real time to the server, as `/play.ogg`. ffmpeg runs on the server's host.
    /// Returns once the stream is audible.
    ///
    /// # Errors
    /// When ffmpeg is missing, or nothing is audible within 10 s.
    pub fn play(&self, file: &Path) -> Result<Process> {
        let mut command = self.host.command("ffmpeg");
        command.args(["-nostdin", "-v", "warning", "-re", "-i"]).arg(file);
        // Pages of 0.1 s limit the delay of the audio.
        command.args([
            "-c",
            "copy",
            "-f",
            "ogg",
            "-page_duration",
            "100000",
            "-content_type",
            "application/ogg",
        ]);
        command.arg(format!("icecast://source:secret@127.0.0.1:{}/play.ogg", self.port));
        let mut source = self.host.spawn("source", command)?;
        let url = format!("http://127.0.0.1:{}/status-json.xsl", self.port);
        source.wait_until("a stream that can be heard", START_LIMIT, |_| {
            self.host
                .tool("curl", &["-s", "--max-time", "2", &url])
                .is_ok_and(|output| output.contains("play.ogg"))
        })?;
        Ok(source)
    }
}

/// Returns a `curl` command that writes the stream of Icecast at `to` to a file. The file grows as bytes
/// arrive.
pub fn listen(host: &Host, to: IpAddr, port: u16, into: &Path) -> Command {
    listen_by(host, to, port, into, &[])
}

/// Like [`listen`], through a wrapper command.
pub fn listen_by(host: &Host, to: IpAddr, port: u16, into: &Path, runner: &[&str]) -> Command {
    let mut words = runner.iter().chain(&["curl"]);
    let mut command = host.command(words.next().unwrap_or(&"curl"));
    command.args(words).args(["--silent", "--show-error", "--no-buffer", "--output"]).arg(into);
    command.arg(format!("http://{to}:{port}/play.ogg"));
    command
}

fn configuration(dir: &Path, ports: &[u16]) -> String {
    let sockets: String = ports
        .iter()
        .map(|port| {
            format!(
                "<listen-socket><port>{port}</port><bind-address>0.0.0.0</bind-address></listen-socket>\n"
            )
        })
        .collect();
    format!(
        "<icecast>
<limits><clients>100</clients><sources>2</sources><burst-on-connect>0</burst-on-connect></limits>
<authentication><source-password>secret</source-password></authentication>
<hostname>localhost</hostname>
{sockets}<fileserve>1</fileserve>
<paths><logdir>{0}</logdir><webroot>/usr/share/icecast2/web</webroot><adminroot>/usr/share/icecast2/admin</adminroot></paths>
<logging><accesslog>access.log</accesslog><errorlog>error.log</errorlog><loglevel>3</loglevel></logging>
</icecast>
",
        dir.display()
    )
}
