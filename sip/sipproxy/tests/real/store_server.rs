//! A Redis or PostgreSQL server for one test, through which proxies share their users.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use testbed::{Host, Process};

use crate::world::{LIMIT, Site};

/// Password of the store, which no output may show.
pub(crate) const PASSWORD: &str = "geheimnis";
pub(crate) const KEY: &str =
    "dialog_key = \"00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff\"\n";

/// Kind of the store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Redis,
    Postgres,
}

impl Kind {
    pub(crate) const ALL: [Kind; 2] = [Kind::Redis, Kind::Postgres];

    /// Returns the store's URL, as the key `store` expects it.
    pub(crate) fn url(self, password: &str, port: u16) -> String {
        match self {
            Kind::Redis => format!("redis://:{password}@127.0.0.1:{port}/3"),
            Kind::Postgres => format!("postgres://sip:{password}@127.0.0.1:{port}/postgres"),
        }
    }

    /// Returns the store's URL with TLS.
    pub(crate) fn tls_url(self) -> String {
        let url = self.url(PASSWORD, PORT);
        match self {
            Kind::Redis => url.replace("redis://", "rediss://"),
            Kind::Postgres => url + "?sslmode=verify-full",
        }
    }

    /// Returns the store's URL as programs may show it.
    pub(crate) fn shown(self, port: u16) -> String {
        match self {
            Kind::Redis => format!("redis://127.0.0.1:{port}/3"),
            Kind::Postgres => format!("postgres://127.0.0.1:{port}/postgres"),
        }
    }
}

/// Port of the store.
pub(crate) const PORT: u16 = 7001;

/// A server for one test, in its own directory.
pub(crate) struct Server {
    pub(crate) kind: Kind,
    host: Host,
    dir: PathBuf,
    certificate: Option<PathBuf>,
}

impl Server {
    pub(crate) fn new(kind: Kind, site: &Site) -> Server {
        let dir = site.dir.join("store");
        std::fs::create_dir(&dir).unwrap();
        let server = Server { kind, host: site.host.clone(), dir, certificate: None };
        if kind == Kind::Postgres {
            server.make_cluster();
        }
        server
    }

    /// Creates a server that only accepts TLS. The file of the key is next to the certificate.
    pub(crate) fn with_tls(kind: Kind, site: &Site, certificate: &Path) -> Server {
        let mut server = Server::new(kind, site);
        let [own, key] = ["pem", "key"].map(|kind| {
            let copy = server.dir.join("own").with_extension(kind);
            std::fs::copy(certificate.with_extension(kind), &copy).unwrap();
            copy
        });
        if kind == Kind::Postgres {
            std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
            server
                .host
                .tool("chown", &["-R", "postgres:postgres", &server.dir.display().to_string()])
                .unwrap();
            let rules = server.dir.join("data/pg_hba.conf");
            let all = std::fs::read_to_string(&rules).unwrap();
            std::fs::write(&rules, all.replace("\nhost ", "\nhostssl ")).unwrap();
        }
        server.certificate = Some(own);
        server
    }

    /// Returns the arguments that make the server use TLS.
    fn tls_words(&self) -> Vec<String> {
        let Some(own) = &self.certificate else { return Vec::new() };
        let (own, key) = (own.display().to_string(), own.with_extension("key").display().to_string());
        match self.kind {
            Kind::Redis => {
                let files = ["--tls-cert-file", &own, "--tls-key-file", &key, "--tls-ca-cert-file", &own];
                let port = PORT.to_string();
                let port = ["--port", "0", "--tls-port", &port, "--tls-auth-clients", "no"];
                [&port[..], &files[..]].concat().into_iter().map(str::to_owned).collect()
            }
            Kind::Postgres => {
                let settings =
                    ["ssl=on".to_owned(), format!("ssl_cert_file={own}"), format!("ssl_key_file={key}")];
                settings.into_iter().flat_map(|setting| ["-c".to_owned(), setting]).collect()
            }
        }
    }

    /// Returns a command for a program of PostgreSQL. It runs as another user, because PostgreSQL refuses to run as root.
    fn postgres(&self, program: &str) -> Command {
        let mut versions: Vec<_> = std::fs::read_dir("/usr/lib/postgresql").unwrap().flatten().collect();
        versions.sort_by_key(std::fs::DirEntry::file_name);
        let program = versions.last().unwrap().path().join("bin").join(program);
        let mut command = self.host.command("setpriv");
        command.args(["--reuid", "postgres", "--regid", "postgres", "--clear-groups"]).arg(program);
        command.current_dir("/").arg("-D").arg(self.dir.join("data"));
        command
    }

    fn make_cluster(&self) {
        let lab = self.dir.parent().unwrap();
        std::fs::set_permissions(lab, std::fs::Permissions::from_mode(0o711)).unwrap();
        let password = self.dir.join("password");
        std::fs::write(&password, PASSWORD).unwrap();
        self.host.tool("chown", &["-R", "postgres:postgres", &self.dir.display().to_string()]).unwrap();
        let mut command = self.postgres("initdb");
        command.args([
            "--username=sip",
            "--auth=scram-sha-256",
            "--no-sync",
            "--locale=C",
            "--encoding=UTF8",
        ]);
        command.arg(format!("--pwfile={}", password.display()));
        self.host.run("initdb", command, LIMIT).unwrap().good().unwrap();
    }

    pub(crate) fn start(&self) -> Process {
        let port = PORT.to_string();
        let (mut command, ready) = match self.kind {
            Kind::Redis => {
                let mut command = self.host.command("redis-server");
                command.args(["--port", &port, "--bind", "127.0.0.1", "--requirepass", PASSWORD]);
                command.args(["--save", "", "--appendonly", "yes", "--dir"]).arg(&self.dir);
                (command, "eady to accept")
            }
            Kind::Postgres => {
                let mut command = self.postgres("postgres");
                command.arg("-k").arg(&self.dir).args(["-h", "127.0.0.1", "-p", &port]);
                (command, "ready to accept connections")
            }
        };
        command.args(self.tls_words()).env_remove("PGPORT");
        let mut server = self.host.spawn("store", command).unwrap();
        let is_ready = |server: &Process| (server.stdout() + &server.stderr()).contains(ready);
        server.wait_until("ready", LIMIT, is_ready).unwrap();
        server
    }
}
