//! nginx with sendfile, which serves a directory on port 80 of all IPv4 and IPv6 addresses.

use crate::host::Host;
use crate::process::Process;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Limit on the time until nginx listens.
const START_LIMIT: Duration = Duration::from_secs(10);

/// A running nginx.
#[derive(Debug)]
pub struct Nginx {
    process: Process,
    root: PathBuf,
}

impl Nginx {
    /// Starts nginx with a separate prefix directory.
    ///
    /// # Errors
    /// When nginx is missing, or does not listen within 10 s.
    pub fn start(host: &Host) -> Result<Self> {
        let prefix = host.dir()?.join("nginx");
        let root = prefix.join("files");
        std::fs::create_dir_all(&root).with_context(|| format!("cannot create {}", root.display()))?;
        std::fs::write(prefix.join("nginx.conf"), configuration(&prefix))?;
        let mut command = host.command("nginx");
        command
            .arg("-p")
            .arg(&prefix)
            .arg("-c")
            .arg(prefix.join("nginx.conf"))
            .arg("-e")
            .arg(prefix.join("error.log"));
        let mut process = host.spawn("nginx", command)?;
        let pid_file = prefix.join("nginx.pid");
        process.wait_until("nginx listening", START_LIMIT, |_| pid_file.exists())?;
        Ok(Self { process, root })
    }

    /// Returns the directory that nginx serves.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the log of requests. Each line has the client's address and port, the request, the status and
    /// the bytes.
    pub fn access_log(&self) -> String {
        std::fs::read_to_string(self.root.with_file_name("access.log")).unwrap_or_default()
    }

    /// Shuts nginx down.
    pub fn stop(self) {
        self.process.stop();
    }
}

fn configuration(prefix: &Path) -> String {
    let prefix = prefix.display();
    format!(
        "daemon off;
user root;
worker_processes 1;
pid {prefix}/nginx.pid;
events {{ worker_connections 4096; }}
http {{
    sendfile on;
    keepalive_requests 10000;
    log_format seen '$remote_addr $remote_port \"$request\" $status $body_bytes_sent';
    access_log {prefix}/access.log seen;
    client_body_temp_path {prefix}/body;
    proxy_temp_path {prefix}/proxy;
    fastcgi_temp_path {prefix}/fastcgi;
    uwsgi_temp_path {prefix}/uwsgi;
    scgi_temp_path {prefix}/scgi;
    server {{
        listen 80 backlog=4096;
        listen [::]:80 ipv6only=on backlog=4096;
        root {prefix}/files;
    }}
}}
"
    )
}
