//! Shares the learned tables of a group of hosts through Redis (setting `learned_store`).
//!
//! A Redis hash has one field for each entry of the learned table. A counter counts the changes of the hash. Each call of
//! [`SharedStore::exchange`] sends this host's findings, reads the later findings of other hosts, and removes entries that this
//! host has forgotten. The exchange runs in the learned table's thread with short time limits, so the event loop never waits
//! for Redis. Without Redis, each host continues with only its own findings. Entries from Redis are checked like the entries of
//! a file.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Error, Result, ensure};
use rules::{LearnedEntry, LearnedTable, MAX_LEARNED, Settings, UnixMs};
use stores::{RedisConnection, RedisServer, USUAL_ROOTS};

/// Name of the hash. It contains the version of the format.
const TABLE: &str = "sctpify:learned:1";
/// Name of the counter of the hash's changes.
const CHANGES: &str = "sctpify:learned:1:changes";
/// Time limit for the connection to Redis, and for its answers.
const LIMIT: Duration = Duration::from_secs(2);
/// Limit on the length of an accepted entry, in bytes.
const ENTRY_BYTES_MAX: usize = 2048;

type Key = (IpAddr, Option<u16>);

/// This host's access to the shared table.
pub(crate) struct SharedStore {
    server: RedisServer,
    connection: Option<RedisConnection>,
    /// For each destination: the time of the last evidence in the entry that this host last sent to the store or received from
    /// it.
    known: BTreeMap<Key, UnixMs>,
    /// Value of the counter when the hash was last read.
    changes: Option<u64>,
    is_failing: bool,
}

impl SharedStore {
    /// Creates the access to the store that the settings name, if they name one. Does not connect yet, but reads the root
    /// certificates for TLS.
    pub(crate) fn of_settings(settings: &Settings) -> Result<Option<SharedStore>> {
        let (url, roots) = (&settings.learned_store, &settings.learned_store_roots);
        let roots = if roots.is_empty() { USUAL_ROOTS } else { roots };
        (!url.is_empty()).then(|| SharedStore::new(url, Path::new(roots))).transpose()
    }

    fn new(url: &str, roots: &Path) -> Result<SharedStore> {
        let server = RedisServer::new(url, roots).map_err(Error::msg).context("setting learned_store")?;
        Ok(SharedStore { server, connection: None, known: BTreeMap::new(), changes: None, is_failing: false })
    }

    /// Sends and receives changes. Of consecutive failures, logs only the first.
    pub(crate) fn exchange(&mut self, table: &Mutex<LearnedTable>, now: UnixMs) {
        match self.try_exchange(table, now) {
            Ok(()) => self.is_failing = false,
            Err(error) => {
                if !self.is_failing {
                    tracing::warn!("learned_store: {error:#}; this host continues alone and retries");
                }
                (self.is_failing, self.connection) = (true, None);
            }
        }
    }

    fn try_exchange(&mut self, table: &Mutex<LearnedTable>, now: UnixMs) -> Result<()> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.server.connect(LIMIT).map_err(Error::msg).context("cannot connect")?,
        };
        self.send(&mut connection, table)?;
        self.receive(&mut connection, table, now)?;
        self.connection = Some(connection);
        Ok(())
    }

    /// Sends entries whose evidence is newer than the store's. Removes entries that are no longer in this host's table.
    fn send(&mut self, connection: &mut RedisConnection, table: &Mutex<LearnedTable>) -> Result<()> {
        let (new, gone) = self.differences(&lock(table));
        if new.is_empty() && gone.is_empty() {
            return Ok(());
        }
        let mut pipe = redis::pipe();
        for entry in &new {
            let text = serde_json::to_string(entry).context("an entry cannot be written")?;
            pipe.cmd("HSET").arg(TABLE).arg(field(&key(entry))).arg(text).ignore();
        }
        for key in &gone {
            pipe.cmd("HDEL").arg(TABLE).arg(field(key)).ignore();
        }
        pipe.cmd("INCR").arg(CHANGES).ignore();
        pipe.exec(connection).context("cannot write")?;
        self.known.extend(new.iter().map(|entry| (key(entry), entry.judged)));
        gone.iter().for_each(|key| _ = self.known.remove(key));
        Ok(())
    }

    fn differences(&self, table: &LearnedTable) -> (Vec<LearnedEntry>, Vec<Key>) {
        let is_new = |entry: &&LearnedEntry| self.known.get(&key(entry)).is_none_or(|at| *at < entry.judged);
        let here: BTreeMap<Key, ()> = table.iter().map(|entry| (key(entry), ())).collect();
        let gone = self.known.keys().filter(|key| !here.contains_key(*key)).copied().collect();
        (table.iter().filter(is_new).cloned().collect(), gone)
    }

    /// Reads the hash if it has changed, and merges its entries into the table. Forgets entries that other hosts have removed.
    fn receive(
        &mut self,
        connection: &mut RedisConnection,
        table: &Mutex<LearnedTable>,
        now: UnixMs,
    ) -> Result<()> {
        let changes: Option<u64> = redis::cmd("GET").arg(CHANGES).query(connection).context("cannot read")?;
        if changes < self.changes {
            // The store has lost its contents. The table keeps its entries, and the next exchange sends all of them again.
            (self.changes, self.known) = (None, BTreeMap::new());
            return Ok(());
        }
        if changes == self.changes {
            return Ok(());
        }
        let length: usize = redis::cmd("HLEN").arg(TABLE).query(connection).context("cannot read")?;
        ensure!(length <= MAX_LEARNED, "{TABLE} has {length} entries, more than {MAX_LEARNED}");
        let all: BTreeMap<String, String> =
            redis::cmd("HGETALL").arg(TABLE).query(connection).context("cannot read")?;
        let fits = |text: &&String| text.len() <= ENTRY_BYTES_MAX;
        let entries: Vec<LearnedEntry> =
            all.values().filter(fits).filter_map(|text| serde_json::from_str(text).ok()).collect();
        self.take_in(&mut lock(table), entries, now);
        self.changes = changes;
        Ok(())
    }

    fn take_in(&mut self, table: &mut LearnedTable, entries: Vec<LearnedEntry>, now: UnixMs) {
        let theirs: BTreeMap<Key, UnixMs> = entries.iter().map(|entry| (key(entry), entry.judged)).collect();
        for (host, port) in self.known.keys().filter(|key| !theirs.contains_key(*key)) {
            table.forget_one(*host, *port);
        }
        for entry in entries {
            table.merge(now, entry);
        }
        self.known = theirs;
    }
}

fn key(entry: &LearnedEntry) -> Key {
    (entry.host, entry.port)
}

fn field((host, port): &Key) -> String {
    port.map_or_else(|| host.to_string(), |port| format!("{host}|{port}"))
}

fn lock(table: &Mutex<LearnedTable>) -> MutexGuard<'_, LearnedTable> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::process::{Child, Command, Stdio};

    use redis::Client;
    use rules::{Failure, LearnPolicy};

    use super::*;

    const NOW: UnixMs = UnixMs(1_700_000_000_000);

    /// A Redis server for one test. Its socket is in a separate directory.
    struct Redis {
        child: Child,
        dir: tempfile::TempDir,
    }

    impl Redis {
        fn start() -> Redis {
            Redis::start_with(tempfile::tempdir().expect("a directory"), &[])
        }

        fn start_with(dir: tempfile::TempDir, more: &[&str]) -> Redis {
            let mut command = Command::new("redis-server");
            command.args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"]);
            command.arg(dir.path().join("socket")).arg("--dir").arg(dir.path()).stdout(Stdio::null());
            command.args(more);
            let child = command.spawn().expect("redis-server, of the package of that name");
            let redis = Redis { child, dir };
            let is_up = || Client::open(redis.url()).is_ok_and(|client| client.get_connection().is_ok());
            assert!(
                testbed::process::wait_for(Duration::from_secs(20), is_up),
                "redis-server does not answer"
            );
            redis
        }

        fn url(&self) -> String {
            format!("redis+unix://{}", self.dir.path().join("socket").display())
        }
    }

    impl Drop for Redis {
        fn drop(&mut self) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }

    fn store(url: &str) -> SharedStore {
        SharedStore::new(url, Path::new(USUAL_ROOTS)).expect("a URL")
    }

    struct Host {
        store: SharedStore,
        table: Mutex<LearnedTable>,
    }

    impl Host {
        fn of(url: &str) -> Host {
            Host { store: store(url), table: Mutex::default() }
        }

        fn exchange(&mut self) {
            self.store.exchange(&self.table, NOW.plus(10_000));
        }

        fn fail(&self, to: SocketAddr) {
            let policy = LearnPolicy::of(&Settings::default());
            lock(&self.table).on_failure(NOW, to, Failure::NoAnswer, &policy);
        }

        fn keeps_on_tcp(&self, to: SocketAddr) -> bool {
            lock(&self.table).explain(to).is_some()
        }
    }

    fn destination() -> SocketAddr {
        "192.0.2.1:22".parse().expect("an address")
    }

    #[test]
    #[ignore = "needs redis-server"]
    fn findings_and_removals_of_one_host_reach_all_others() {
        let redis = Redis::start();
        let (mut one, mut other, to) = (Host::of(&redis.url()), Host::of(&redis.url()), destination());
        one.fail(to);
        [&mut one, &mut other].into_iter().for_each(Host::exchange);
        assert!(other.keeps_on_tcp(to));
        lock(&other.table).on_success(NOW.plus(5_000), to, Some(900));
        [&mut other, &mut one].into_iter().for_each(Host::exchange);
        assert!(!one.keeps_on_tcp(to), "the newer finding counts");
        lock(&one.table).forget(to.ip());
        [&mut one, &mut other].into_iter().for_each(Host::exchange);
        assert!(lock(&other.table).is_empty(), "forgotten by all");
    }

    #[test]
    #[ignore = "needs redis-server"]
    fn a_store_that_has_lost_everything_makes_nobody_forget_and_is_filled_again() {
        let redis = Redis::start();
        let (mut one, mut other, to) = (Host::of(&redis.url()), Host::of(&redis.url()), destination());
        one.fail(to);
        one.exchange();
        let mut connection =
            Client::open(redis.url()).and_then(|c| c.get_connection()).expect("a connection");
        redis::cmd("FLUSHALL").exec(&mut connection).expect("flushed");
        (0..2).for_each(|_| one.exchange());
        other.exchange();
        assert!(one.keeps_on_tcp(to) && other.keeps_on_tcp(to));
    }

    #[test]
    #[ignore = "needs redis-server"]
    fn rubbish_in_the_store_is_left_alone() {
        let redis = Redis::start();
        let (mut host, to) = (Host::of(&redis.url()), destination());
        let mut connection =
            Client::open(redis.url()).and_then(|c| c.get_connection()).expect("a connection");
        for rubbish in ["{", "[]", &"x".repeat(ENTRY_BYTES_MAX + 1)] {
            redis::cmd("HSET")
                .arg(TABLE)
                .arg(&rubbish[..1])
                .arg(rubbish)
                .exec(&mut connection)
                .expect("written");
        }
        host.fail(to);
        host.exchange();
        assert!(!host.store.is_failing && lock(&host.table).len() == 1);
    }

    #[test]
    #[ignore = "needs redis-server"]
    fn a_host_goes_on_alone_without_its_store_and_shares_again_later() {
        let redis = Redis::start();
        let (mut host, to) = (Host::of(&redis.url()), destination());
        let mut gone = Host::of("redis+unix:///nonexistent/socket");
        gone.fail(to);
        gone.exchange();
        assert!(gone.store.is_failing && gone.keeps_on_tcp(to));
        gone.store = store(&redis.url());
        gone.exchange();
        host.exchange();
        assert!(!gone.store.is_failing && host.keeps_on_tcp(to));
    }

    /// Writes a self-signed certificate and its key to the files `file`.pem and `file`.key in `dir`.
    fn make_certificate(dir: &Path, file: &str) {
        let mut command = Command::new("openssl");
        command.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]);
        command.args(["-days", "2", "-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1"]);
        command.args(["-addext", "basicConstraints=critical,CA:FALSE"]);
        command.arg("-keyout").arg(dir.join(format!("{file}.key")));
        command.arg("-out").arg(dir.join(format!("{file}.pem"))).stderr(Stdio::null());
        assert!(command.status().expect("openssl, of the package of that name").success());
    }

    #[test]
    #[ignore = "needs redis-server"]
    fn a_store_is_reached_by_tls_where_its_certificate_comes_from_the_roots() {
        let dir = tempfile::tempdir().expect("a directory");
        ["own", "other"].iter().for_each(|file| make_certificate(dir.path(), file));
        let file = |name: &str| dir.path().join(name);
        let [own, key, other] = ["own.pem", "own.key", "other.pem"].map(file);
        let port = free_port();
        let [own_word, key_word] = [&own, &key].map(|path| path.display().to_string());
        let words = ["--tls-port", &port, "--tls-auth-clients", "no", "--tls-cert-file", &own_word];
        let more = ["--tls-key-file", &key_word, "--tls-ca-cert-file", &own_word];
        let _redis = Redis::start_with(dir, &[&words[..], &more].concat());
        let url = format!("rediss://127.0.0.1:{port}/");
        let host = |roots: &Path| Host {
            store: SharedStore::new(&url, roots).expect("roots"),
            table: Mutex::default(),
        };
        let (mut one, mut stranger, to) = (host(&own), host(&other), destination());
        one.fail(to);
        one.exchange();
        assert!(!one.store.is_failing);
        let mut two = host(&own);
        two.exchange();
        assert!(two.keeps_on_tcp(to));
        stranger.exchange();
        assert!(stranger.store.is_failing && !stranger.keeps_on_tcp(to));
    }

    /// Returns a loopback port without a listener.
    fn free_port() -> String {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.local_addr().expect("an address").port().to_string()
    }

    #[test]
    fn an_invalid_store_url_is_refused() {
        assert!(SharedStore::new("nonsense", Path::new(USUAL_ROOTS)).is_err());
    }
}
