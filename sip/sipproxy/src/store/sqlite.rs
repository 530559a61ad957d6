//! Bindings in a file: one SQLite table, and one transaction per call of [`Sqlite::write`].
//!
//! Committed changes survive any end of the process. A crash of the whole system may lose the last transactions, but does not damage the
//! file: SQLite uses a write-ahead log with synchronous = NORMAL.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base::Time;
use rusqlite::{Connection, Row, params};
use sip::{Binding, Change, Hop, Transport};

use crate::clock::since_1970;
use crate::error::SipError;

/// An open store.
#[derive(Debug)]
pub struct Sqlite {
    path: PathBuf,
    connection: Connection,
}

const SCHEMA: &str = "
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = NORMAL;
    CREATE TABLE IF NOT EXISTS binding (
        user TEXT NOT NULL, uri BLOB NOT NULL, expires_ms INTEGER NOT NULL, call_id BLOB NOT NULL, cseq INTEGER NOT NULL,
        path BLOB NOT NULL, instance BLOB, transport TEXT NOT NULL, source TEXT NOT NULL, listener INTEGER NOT NULL,
        q INTEGER NOT NULL DEFAULT 1000,
        PRIMARY KEY (user, uri)
    ) WITHOUT ROWID;
";

impl Sqlite {
    /// Opens a store, and creates its file if it is missing.
    ///
    /// # Errors
    /// If the file cannot be used.
    pub fn open(path: &Path) -> Result<Sqlite, SipError> {
        let connection = Connection::open(path).map_err(super::failed_file(path))?;
        connection.execute_batch(SCHEMA).map_err(super::failed_file(path))?;
        add_missing(&connection).map_err(super::failed_file(path))?;
        Ok(Sqlite { path: path.to_owned(), connection })
    }

    /// Deletes expired bindings, and loads the others. `now` is the current time of this run, and `listeners` is the number of listeners.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn load(&self, now: Time, listeners: usize) -> Result<Vec<Change>, SipError> {
        self.try_load(now, listeners).map_err(super::failed_file(&self.path))
    }

    fn try_load(&self, now: Time, listeners: usize) -> rusqlite::Result<Vec<Change>> {
        let today = since_1970();
        let today_ms = i64::try_from(today.as_millis()).unwrap_or(i64::MAX);
        self.connection.execute("DELETE FROM binding WHERE expires_ms <= ?1", [today_ms])?;
        let mut query = self.connection.prepare("SELECT * FROM binding")?;
        let rows = query.query_map([], |row| read(row, now, today))?;
        let mut changes = Vec::new();
        for change in rows {
            // Skips bindings with an unknown transport or an invalid address, and bindings of listeners that are no longer configured.
            if let Some(change) = change?.filter(|change| is_reachable(change, listeners)) {
                changes.push(change);
            }
        }
        Ok(changes)
    }

    /// Writes changes in one transaction: all of them or none.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&mut self, now: Time, changes: &[Change]) -> Result<(), SipError> {
        if changes.is_empty() {
            return Ok(());
        }
        self.try_write(now, changes).map_err(super::failed_file(&self.path))
    }

    fn try_write(&mut self, now: Time, changes: &[Change]) -> rusqlite::Result<()> {
        let today = since_1970();
        let transaction = self.connection.transaction()?;
        for change in changes {
            match change {
                Change::Put { user, binding } => put(&transaction, user, binding, now, today)?,
                Change::Remove { user, uri } => {
                    let mut statement =
                        transaction.prepare_cached("DELETE FROM binding WHERE user = ?1 AND uri = ?2")?;
                    statement.execute(params![user, &uri[..]])?;
                }
            }
        }
        transaction.commit()
    }
}

/// Adds columns that the files of earlier versions lack.
fn add_missing(to: &Connection) -> rusqlite::Result<()> {
    let known = to.prepare("SELECT q FROM binding LIMIT 0");
    match known {
        Ok(_) => Ok(()),
        Err(_) => to.execute_batch("ALTER TABLE binding ADD COLUMN q INTEGER NOT NULL DEFAULT 1000"),
    }
}

fn put(to: &Connection, user: &str, binding: &Binding, now: Time, today: Duration) -> rusqlite::Result<()> {
    let expires = today + binding.expires.since(now);
    let mut statement = to.prepare_cached(
        "INSERT OR REPLACE INTO binding VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
    )?;
    statement.execute(params![
        user,
        &binding.uri[..],
        i64::try_from(expires.as_millis()).unwrap_or(i64::MAX),
        &binding.call_id[..],
        binding.cseq,
        // The separator is unambiguous: a line end within a Path value is a fold, so a space or tab follows it.
        binding.path.join(&b"\n\n"[..]),
        binding.instance.as_deref(),
        binding.flow.transport.as_lower_str(),
        binding.flow.address.to_string(),
        i64::try_from(binding.flow.listener).unwrap_or(0),
        binding.q,
    ])?;
    Ok(())
}

fn read(row: &Row<'_>, now: Time, today: Duration) -> rusqlite::Result<Option<Change>> {
    let expires = Duration::from_millis(u64::try_from(row.get::<_, i64>(2)?).unwrap_or(0));
    let path: Vec<u8> = row.get(5)?;
    let (transport, source): (String, String) = (row.get(7)?, row.get(8)?);
    let listener = usize::try_from(row.get::<_, i64>(9)?).unwrap_or(usize::MAX);
    let (Some(transport), Ok(address)) =
        (Transport::from_bytes(transport.as_bytes()), source.parse::<SocketAddr>())
    else {
        return Ok(None);
    };
    let binding = Binding {
        uri: row.get::<_, Vec<u8>>(1)?.into(),
        expires: now + expires.saturating_sub(today),
        call_id: row.get::<_, Vec<u8>>(3)?.into(),
        cseq: row.get(4)?,
        path: split_path(&path),
        instance: row.get::<_, Option<Vec<u8>>>(6)?.map(Into::into),
        q: row.get(10)?,
        // Connections do not outlive the process.
        flow: Hop { listener, transport, address, connection: None },
        through: None,
    };
    Ok(Some(Change::Put { user: row.get(0)?, binding }))
}

fn split_path(mut bytes: &[u8]) -> Vec<Box<[u8]>> {
    let mut values = Vec::new();
    while !bytes.is_empty() {
        let end = bytes.windows(2).position(|two| two == b"\n\n");
        values.push(bytes[..end.unwrap_or(bytes.len())].into());
        bytes = end.map_or(&[], |end| &bytes[end + 2..]);
    }
    values
}

fn is_reachable(change: &Change, listeners: usize) -> bool {
    matches!(change, Change::Put { binding, .. } if binding.flow.listener < listeners)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn binding(uri: &str, seconds: u64) -> Binding {
        Binding {
            uri: uri.as_bytes().into(),
            expires: Time::ZERO + Duration::from_secs(seconds),
            call_id: b"c"[..].into(),
            cseq: 7,
            path: vec![b"<sip:a;lr>"[..].into(), b"<sip:b;lr>"[..].into()],
            instance: Some(b"i"[..].into()),
            q: 700,
            flow: Hop {
                listener: 1,
                transport: Transport::Tcp,
                address: "192.0.2.1:99".parse().unwrap(),
                connection: None,
            },
            through: None,
        }
    }

    fn put(uri: &str, seconds: u64) -> Change {
        Change::Put { user: "a@b".to_owned(), binding: binding(uri, seconds) }
    }

    #[test]
    fn written_bindings_survive_reopening_the_store() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("bindings.db");
        let changes = [put("sip:x", 100), put("sip:y", 100), put("sip:old", 0)];
        let removal = Change::Remove { user: "a@b".to_owned(), uri: b"sip:y"[..].into() };
        let mut store = Sqlite::open(&path).unwrap();
        store.write(Time::ZERO, &changes).unwrap();
        store.write(Time::ZERO, &[removal]).unwrap();
        drop(store);
        let found = Sqlite::open(&path).unwrap().load(Time::ZERO, 2).unwrap();
        let [Change::Put { user, binding: loaded }] = &found[..] else { panic!("{found:?}") };
        assert_eq!(user, "a@b");
        let left = loaded.expires.since(Time::ZERO);
        assert!(left <= Duration::from_secs(100) && left > Duration::from_secs(90), "{left:?}");
        let same = Binding { expires: loaded.expires, ..binding("sip:x", 100) };
        assert_eq!(*loaded, same);
    }

    #[test]
    fn bindings_of_listeners_that_are_gone_are_not_loaded() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = Sqlite::open(&dir.path().join("b.db")).unwrap();
        store.write(Time::ZERO, &[put("sip:x", 100)]).unwrap();
        assert!(store.load(Time::ZERO, 1).unwrap().is_empty());
    }
}
