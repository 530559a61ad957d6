//! PostgreSQL as the store: a table with a version and a text for each user, and `NOTIFY` for notifications.
//!
//! Missing tables are created. One statement replaces a record: it compares the version, writes and notifies. Commands that wait at the
//! same time form one transaction. Each transaction locks rows in the order of their keys, which prevents deadlocks between proxies.
//! Versions grow with the server's clock, so the version of a deleted record does not recur. The library is asynchronous. Each connection
//! has its own small runtime, which runs only during a call. Each call has a time limit.

use std::future::Future;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::{Receiver, channel};
use tokio::time::timeout;
use tokio_postgres::config::SslMode;
use tokio_postgres::types::ToSql;
use tokio_postgres::{AsyncMessage, Client, Config, Connection, Row, Socket, Statement};

use super::ServerAddress;
use super::backend::{Backend, Command, Commands, Event, Failure, LIMIT, News, Reply, event_of};
use super::postgres_tls::{Tls, TlsSocket};

/// Channel of notifications. The number is the version of the format.
const CHANNEL: &str = "sctpify_sip_1";
/// Limit on the length of a text in a notification, in bytes. `NOTIFY` accepts 7999 bytes.
const TOLD_MAX: usize = 7900;
/// Number of records that one query reads.
const PAGE: i64 = 1000;
/// Limit on notifications that wait to be processed.
const NEWS_MAX: usize = 1000;
/// Number of heartbeats between deletions of expired rows.
const BEATS: u32 = 30;

/// Statements that create the tables. They run under a lock, because two proxies may start at once.
const SCHEMA: &str = "
    SELECT pg_advisory_xact_lock(50604168);
    CREATE TABLE IF NOT EXISTS sctpify_sip_user (
        name text PRIMARY KEY, version bigint NOT NULL, expires_ms bigint NOT NULL, record text NOT NULL);
    CREATE INDEX IF NOT EXISTS sctpify_sip_user_expires ON sctpify_sip_user (expires_ms);
    CREATE UNLOGGED TABLE IF NOT EXISTS sctpify_sip_nonce (
        nonce text PRIMARY KEY, count bigint NOT NULL, expires_ms bigint NOT NULL);
    CREATE INDEX IF NOT EXISTS sctpify_sip_nonce_expires ON sctpify_sip_nonce (expires_ms);
";
const HAS_SCHEMA: &str =
    "SELECT to_regclass('sctpify_sip_user') IS NOT NULL AND to_regclass('sctpify_sip_nonce') IS NOT NULL";
const READ: &str = "SELECT version, record FROM sctpify_sip_user WHERE name = $1";
const PAGES: &str =
    "SELECT version, record, name FROM sctpify_sip_user WHERE name > $1 ORDER BY name LIMIT $2";
const INSERT: &str = "
    WITH done AS (
        INSERT INTO sctpify_sip_user (name, version, expires_ms, record)
        VALUES ($1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, $2, $3)
        ON CONFLICT (name) DO NOTHING RETURNING version)
    SELECT version, pg_notify($4::text, version || E'\\n' || $5::text) FROM done";
const UPDATE: &str = "
    WITH done AS (
        UPDATE sctpify_sip_user
        SET version = greatest(version + 1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint),
            expires_ms = $2, record = $3
        WHERE name = $1 AND version = $6 RETURNING version)
    SELECT version, pg_notify($4::text, version || E'\\n' || $5::text) FROM done";
const DELETE: &str = "
    WITH done AS (
        DELETE FROM sctpify_sip_user WHERE name = $1 AND version = $4
        RETURNING greatest(version + 1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS version)
    SELECT version, pg_notify($2::text, version || E'\\n' || $3::text) FROM done";
const USE: &str = "
    INSERT INTO sctpify_sip_nonce (nonce, count, expires_ms) VALUES ($1, $2, $3)
    ON CONFLICT (nonce) DO UPDATE SET count = excluded.count WHERE sctpify_sip_nonce.count < excluded.count
    RETURNING 1";
const BEAT: &str =
    "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint, pg_notify($1::text, E'0\\n' || $2::text)";
const FORGET: &str = "
    DELETE FROM sctpify_sip_user WHERE expires_ms <= extract(epoch FROM clock_timestamp()) * 1000;
    DELETE FROM sctpify_sip_nonce WHERE expires_ms <= extract(epoch FROM clock_timestamp()) * 1000";

/// Checks that a URL is a PostgreSQL URL with supported options, and that its root certificates can be read.
pub(super) fn check(address: &ServerAddress) -> Result<(), String> {
    Postgres::new(address).map(drop)
}

pub(super) fn has_tls(address: &ServerAddress) -> bool {
    take_ssl_mode(address.url.as_str()).is_ok_and(|(_, mode)| mode == SslMode::Require)
}

/// A PostgreSQL server.
pub(super) struct Postgres {
    config: Config,
    tls: Tls,
}

impl Postgres {
    pub(super) fn new(address: &ServerAddress) -> Result<Postgres, String> {
        let (url, mode) = take_ssl_mode(address.url.as_str())?;
        // The library's message is not shown, because it might contain a part of the URL.
        let wrong =
            |_| "is not a PostgreSQL URL: expected postgres://USER:PASSWORD@HOST:PORT/DATABASE".to_owned();
        let mut config: Config = url.parse().map_err(wrong)?;
        config.ssl_mode(mode).connect_timeout(LIMIT).application_name("sctpify-sip");
        let tls = match mode {
            SslMode::Disable => Tls::none(),
            _ => Tls::with_roots(&address.roots)?,
        };
        Ok(Postgres { config, tls })
    }
}

/// Splits the URL into its `sslmode` and the rest. The library has no `verify-full`, but all certificates are checked as `verify-full`
/// demands.
fn take_ssl_mode(url: &str) -> Result<(String, SslMode), String> {
    const KEY: &str = "sslmode=";
    let Some(at) = url.rmatch_indices(KEY).map(|(at, _)| at).find(|at| url[..*at].ends_with(['?', '&']))
    else {
        return Ok((url.to_owned(), SslMode::Disable));
    };
    let (head, value) = (&url[..at], &url[at + KEY.len()..]);
    let (value, tail) = value.split_once('&').unwrap_or((value, ""));
    let mode = match value {
        "disable" => SslMode::Disable,
        "require" | "verify-full" => SslMode::Require,
        _ => {
            return Err(
                "sslmode must be disable, or require or verify-full, which are the same here".to_owned()
            );
        }
    };
    Ok((format!("{head}{tail}"), mode))
}

fn text(error: tokio_postgres::Error) -> Failure {
    match (error.as_db_error(), std::error::Error::source(&error)) {
        (Some(told), _) => told.message().to_owned(),
        (None, Some(source)) => format!("{error}: {source}"),
        (None, None) => error.to_string(),
    }
}

/// A connection with its own runtime.
struct Session {
    runtime: Runtime,
    client: Client,
}

impl Session {
    fn open(server: &Postgres) -> Result<(Session, Connection<Socket, TlsSocket>), Failure> {
        let runtime =
            Builder::new_current_thread().enable_all().build().map_err(|error| error.to_string())?;
        let connect = async { server.config.connect(server.tls.clone()).await.map_err(text) };
        let (client, connection) = within(&runtime, connect)?;
        Ok((Session { runtime, client }, connection))
    }

    /// Opens a connection that ignores notifications.
    fn open_quiet(server: &Postgres) -> Result<Session, Failure> {
        let (session, connection) = Session::open(server)?;
        session.runtime.spawn(async move { drop(connection.await) });
        Ok(session)
    }

    /// Runs `work` with the time limit [`LIMIT`].
    fn within<T>(&self, work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
        within(&self.runtime, work)
    }

    fn execute(&self, statements: &str) -> Result<(), Failure> {
        self.within(execute(&self.client, statements))
    }

    fn query(&self, statement: &Statement, values: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>, Failure> {
        self.within(query(&self.client, statement, values))
    }

    fn prepare(&self, statement: &str) -> Result<Statement, Failure> {
        self.within(async { self.client.prepare(statement).await.map_err(text) })
    }

    fn one<T: for<'a> tokio_postgres::types::FromSql<'a>>(&self, statement: &str) -> Result<T, Failure> {
        let row = self.within(async { self.client.query_one(statement, &[]).await.map_err(text) })?;
        row.try_get(0).map_err(text)
    }
}

fn within<T>(runtime: &Runtime, work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let done = runtime.block_on(async { timeout(LIMIT, work).await });
    done.unwrap_or_else(|_| Err(format!("no answer in {} s", LIMIT.as_secs())))
}

async fn execute(client: &Client, statements: &str) -> Result<(), Failure> {
    client.batch_execute(statements).await.map_err(text)
}

async fn query(
    client: &Client,
    statement: &Statement,
    values: &[&(dyn ToSql + Sync)],
) -> Result<Vec<Row>, Failure> {
    client.query(statement, values).await.map_err(text)
}

impl Backend for Postgres {
    fn connect(&self) -> Result<Box<dyn Commands>, Failure> {
        let session = Session::open_quiet(self)?;
        // A role may lack the permission to create tables, even if it may use them.
        if !session.one::<bool>(HAS_SCHEMA)? {
            session.execute(SCHEMA)?;
        }
        let [read, insert, update, delete, note, beat] =
            [READ, INSERT, UPDATE, DELETE, USE, BEAT].map(|statement| session.prepare(statement));
        let statements =
            Statements { read: read?, insert: insert?, update: update?, delete: delete?, note: note? };
        Ok(Box::new(PostgresCommands { session, statements, beat: beat?, beats: 0 }))
    }

    fn listen(&self) -> Result<Box<dyn News>, Failure> {
        let (session, mut connection) = Session::open(self)?;
        let (tell, news) = channel(NEWS_MAX);
        session.runtime.spawn(async move {
            while let Some(Ok(message)) =
                std::future::poll_fn(|context| connection.poll_message(context)).await
            {
                if let AsyncMessage::Notification(told) = message
                    && tell.send(told.payload().to_owned()).await.is_err()
                {
                    return;
                }
            }
        });
        session.execute(&format!("LISTEN {CHANNEL}"))?;
        let records = Session::open_quiet(self)?;
        let (read, pages) = (records.prepare(READ)?, records.prepare(PAGES)?);
        Ok(Box::new(PostgresNews { session, news, records, read, pages }))
    }
}

struct PostgresCommands {
    session: Session,
    statements: Statements,
    beat: Statement,
    beats: u32,
}

/// Prepared statements for [`Command`].
struct Statements {
    read: Statement,
    insert: Statement,
    update: Statement,
    delete: Statement,
    note: Statement,
}

impl Statements {
    /// Executes all commands in one transaction.
    async fn run(&self, client: &Client, commands: &[Command]) -> Result<Vec<Reply>, Failure> {
        let mut order: Vec<usize> = (0..commands.len()).collect();
        order.sort_by_key(|&at| key_of(&commands[at]));
        // A single statement is a transaction by itself.
        let is_transaction = commands.len() > 1;
        if is_transaction {
            execute(client, "BEGIN").await?;
        }
        let mut replies: Vec<(usize, Reply)> = Vec::with_capacity(commands.len());
        for at in order {
            replies.push((at, self.run_one(client, &commands[at]).await?));
        }
        if is_transaction {
            execute(client, "COMMIT").await?;
        }
        replies.sort_by_key(|(at, _)| *at);
        Ok(replies.into_iter().map(|(_, reply)| reply).collect())
    }

    async fn run_one(&self, client: &Client, command: &Command) -> Result<Reply, Failure> {
        match command {
            Command::Read { key } => self.record(client, key).await,
            Command::Replace { key, .. } => match self.replace(client, command).await? {
                Some(version) => Ok(Reply::Replaced(version)),
                None => self.record(client, key).await,
            },
            Command::Use { nonce, count, expires_ms } => {
                let values: [&(dyn ToSql + Sync); 3] = [nonce, &i64::from(*count), &signed(*expires_ms)];
                let rows = query(client, &self.note, &values).await?;
                Ok(Reply::IsFirst(!rows.is_empty()))
            }
        }
    }

    async fn record(&self, client: &Client, key: &str) -> Result<Reply, Failure> {
        let rows = query(client, &self.read, &[&key]).await?;
        rows.first().map(record_of).transpose().map(Reply::Is)
    }

    /// Replaces a record that has the expected version, and returns the new version. Returns `None` if the version differs.
    async fn replace(&self, client: &Client, command: &Command) -> Result<Option<u64>, Failure> {
        let Command::Replace { key, version, text, is_gone, expires_ms } = command else { return Ok(None) };
        let told = if text.len() > TOLD_MAX { format!("!{key}") } else { text.clone() };
        let (version, expires) = (signed(*version), signed(*expires_ms));
        let rows = match (*is_gone, version) {
            (true, _) => query(client, &self.delete, &[key, &CHANNEL, &told, &version]).await?,
            (false, 0) => query(client, &self.insert, &[key, &expires, text, &CHANNEL, &told]).await?,
            (false, _) => {
                query(client, &self.update, &[key, &expires, text, &CHANNEL, &told, &version]).await?
            }
        };
        rows.first().map(|row| number(row, 0)).transpose()
    }
}

impl Commands for PostgresCommands {
    fn run(&mut self, commands: &[Command]) -> Result<Vec<Reply>, Failure> {
        self.session.within(self.statements.run(&self.session.client, commands))
    }

    fn beat(&mut self, who: &str) -> Result<u64, Failure> {
        let rows = self.session.query(&self.beat, &[&CHANNEL, &who])?;
        if self.beats.is_multiple_of(BEATS) {
            self.session.execute(FORGET)?;
        }
        self.beats = self.beats.wrapping_add(1);
        number(rows.first().ok_or("PostgreSQL did not report its time")?, 0)
    }

    fn warnings(&mut self) -> Vec<String> {
        let off = |name: &str| {
            self.session.one::<String>(&format!("SHOW {name}")).is_ok_and(|value| value == "off")
        };
        let settings = ["fsync", "synchronous_commit"].into_iter().filter(|name| off(name));
        settings
            .map(|name| format!("PostgreSQL has {name} off: a crash loses the latest registrations"))
            .collect()
    }
}

/// Returns the sort key of a command. All proxies lock rows in this order, which prevents deadlocks.
fn key_of(command: &Command) -> (u8, &str) {
    match command {
        Command::Use { nonce, .. } => (0, nonce),
        Command::Read { key } | Command::Replace { key, .. } => (1, key),
    }
}

fn record_of(row: &Row) -> Result<(u64, String), Failure> {
    Ok((number(row, 0)?, row.try_get(1).map_err(text)?))
}

fn number(row: &Row, column: usize) -> Result<u64, Failure> {
    let number: i64 = row.try_get(column).map_err(text)?;
    u64::try_from(number).map_err(|_| "a number is below zero".to_owned())
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

struct PostgresNews {
    /// Session with the runtime of the connection that delivers `news`.
    session: Session,
    news: Receiver<String>,
    records: Session,
    read: Statement,
    pages: Statement,
}

impl News for PostgresNews {
    fn load(&mut self, each: &mut dyn FnMut(u64, String)) -> Result<(), Failure> {
        let mut last = String::new();
        loop {
            let rows = self.records.query(&self.pages, &[&last, &PAGE])?;
            let Some(end) = rows.last() else { return Ok(()) };
            last = end.try_get(2).map_err(text)?;
            for row in &rows {
                let (version, record) = record_of(row)?;
                each(version, record);
            }
        }
    }

    fn next(&mut self, limit: Duration) -> Result<Option<Event>, Failure> {
        let told = match self.session.runtime.block_on(async { timeout(limit, self.news.recv()).await }) {
            Err(_) => return Ok(None),
            Ok(None) => return Err("the connection was closed".to_owned()),
            Ok(Some(told)) => told,
        };
        match event_of(&told).ok_or_else(|| format!("an unknown program writes to {CHANNEL}"))? {
            Event::Changed(_, told) if told.starts_with('!') => self.read(&told[1..]),
            event => Ok(Some(event)),
        }
    }
}

impl PostgresNews {
    /// Reads a record that was too long for its notification. If the record has been deleted meanwhile, returns an event without effect,
    /// because the notification of the deletion follows.
    fn read(&self, key: &str) -> Result<Option<Event>, Failure> {
        let rows = self.records.query(&self.read, &[&key])?;
        let Some(row) = rows.first() else { return Ok(Some(Event::Presence(String::new()))) };
        let (version, record) = record_of(row)?;
        Ok(Some(Event::Changed(version, record)))
    }
}
