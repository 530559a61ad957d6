//! Redis as the store: a hash with a version and a text for each user, and a channel for notifications. A hash expires with its last
//! binding.
//!
//! A script replaces a record: it compares the version, writes and notifies in one step. A replacement is as durable as Redis's own
//! settings make it (`appendonly`). Versions grow with the server's clock, so the version of a deleted or expired record does not recur.

use std::time::Duration;

use redis::Value;
use stores::{RedisConnection, RedisServer};

use super::ServerAddress;
use super::backend::{Backend, Command, Commands, Event, Failure, LIMIT, News, Reply, event_of};

/// Prefix of each user's key. The number is the version of the format.
const USERS: &str = "sctpify:sip:1:user:";
/// Prefix of the key of each used nonce.
const NONCES: &str = "sctpify:sip:1:nonce:";
/// Prefix of the channel's name, which ends with the database's number. Channels are common to all databases of a server.
const CHANNEL: &str = "sctpify:sip:1:changes:";
/// Number of keys to request in one step of a scan.
const SCANNED: usize = 1000;

/// Script that replaces a record. KEYS: the record. ARGV: expected version, text, 1 to delete the record, expiry in ms since 1970, channel.
const REPLACE: &str = "
local v = redis.call('HGET', KEYS[1], 'version') or '0'
if v ~= ARGV[1] then return {0, v, redis.call('HGET', KEYS[1], 'text') or ''} end
local t = redis.call('TIME')
local n = string.format('%.0f', math.max(tonumber(v) + 1, t[1] * 1000000 + t[2]))
if ARGV[3] == '1' then redis.call('DEL', KEYS[1])
else
  redis.call('HSET', KEYS[1], 'version', n, 'text', ARGV[2])
  redis.call('PEXPIREAT', KEYS[1], ARGV[4])
end
redis.call('PUBLISH', ARGV[5], n .. '\\n' .. ARGV[2])
return {1, n, ''}";

/// Script that records the use of a nonce. KEYS: the nonce. ARGV: count, expiry in ms since 1970.
const USE: &str = "
if tonumber(redis.call('GET', KEYS[1]) or '0') >= tonumber(ARGV[1]) then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PXAT', ARGV[2])
return 1";

/// Checks that a URL is a Redis URL, and that its root certificates can be read.
pub(super) fn check(address: &ServerAddress) -> Result<(), String> {
    Redis::new(address).map(drop)
}

pub(super) fn has_tls(address: &ServerAddress) -> bool {
    address.url.as_str().starts_with("rediss://")
}

/// A Redis server.
pub(super) struct Redis {
    server: RedisServer,
    channel: String,
}

impl Redis {
    pub(super) fn new(address: &ServerAddress) -> Result<Redis, String> {
        let server = RedisServer::new(address.url.as_str(), &address.roots)?;
        let channel = format!("{CHANNEL}{}", server.db());
        Ok(Redis { server, channel })
    }

    fn open(&self) -> Result<RedisConnection, Failure> {
        self.server.connect(LIMIT)
    }
}

fn text(error: redis::RedisError) -> Failure {
    error.to_string()
}

impl Backend for Redis {
    fn connect(&self) -> Result<Box<dyn Commands>, Failure> {
        let mut connection = self.open()?;
        let mut load = |script: &str| {
            redis::cmd("SCRIPT").arg("LOAD").arg(script).query::<String>(&mut connection).map_err(text)
        };
        let (replace, note) = (load(REPLACE)?, load(USE)?);
        Ok(Box::new(RedisCommands { connection, replace, note, channel: self.channel.clone() }))
    }

    fn listen(&self) -> Result<Box<dyn News>, Failure> {
        let (mut news, records) = (self.open()?, self.open()?);
        news.send(redis::cmd("SUBSCRIBE").arg(&self.channel)).map_err(text)?;
        news.receive().map_err(text)?;
        Ok(Box::new(RedisNews { news, records }))
    }
}

struct RedisCommands {
    connection: RedisConnection,
    /// The server's hash of [`REPLACE`].
    replace: String,
    /// The server's hash of [`USE`].
    note: String,
    channel: String,
}

impl Commands for RedisCommands {
    fn run(&mut self, commands: &[Command]) -> Result<Vec<Reply>, Failure> {
        let mut pipe = redis::pipe();
        for command in commands {
            match command {
                Command::Read { key } => {
                    pipe.cmd("HMGET").arg(format!("{USERS}{key}")).arg(&["version", "text"]);
                }
                Command::Replace { key, version, text, is_gone, expires_ms } => {
                    pipe.cmd("EVALSHA").arg(&self.replace).arg(1).arg(format!("{USERS}{key}"));
                    pipe.arg(*version).arg(text).arg(u8::from(*is_gone)).arg(*expires_ms).arg(&self.channel);
                }
                Command::Use { nonce, count, expires_ms } => {
                    pipe.cmd("EVALSHA").arg(&self.note).arg(1).arg(format!("{NONCES}{nonce}"));
                    pipe.arg(*count).arg(*expires_ms);
                }
            }
        }
        let values: Vec<Value> = pipe.query(&mut self.connection).map_err(text)?;
        if values.len() != commands.len() {
            return Err("Redis answered an unexpected number of commands".to_owned());
        }
        commands.iter().zip(values).map(|(command, value)| reply_of(command, value)).collect()
    }

    fn beat(&mut self, who: &str) -> Result<u64, Failure> {
        let mut pipe = redis::pipe();
        pipe.cmd("PUBLISH").arg(&self.channel).arg(format!("0\n{who}")).ignore().cmd("TIME");
        let ((seconds, micros),): ((u64, u64),) = pipe.query(&mut self.connection).map_err(text)?;
        Ok(seconds * 1000 + micros / 1000)
    }

    fn warnings(&mut self) -> Vec<String> {
        // An error is ignored, because hosted servers often do not reveal their settings.
        let mut setting = |name: &str| -> Option<String> {
            let asked = redis::cmd("CONFIG").arg("GET").arg(name).query(&mut self.connection);
            let (_, value): (String, String) = asked.ok()?;
            Some(value)
        };
        let mut found = Vec::new();
        if setting("appendonly").is_some_and(|value| value != "yes") {
            found.push("Redis has appendonly off: registrations are lost when it ends".to_owned());
        }
        if let Some(policy) = setting("maxmemory-policy").filter(|policy| policy != "noeviction") {
            found.push(format!(
                "Redis has maxmemory-policy {policy}: it deletes users when it is full; use noeviction"
            ));
        }
        found
    }
}

fn reply_of(command: &Command, value: Value) -> Result<Reply, Failure> {
    match command {
        Command::Use { .. } => {
            redis::from_redis_value(value).map(Reply::IsFirst).map_err(|error| error.to_string())
        }
        Command::Read { .. } => {
            let (version, text): (Option<u64>, Option<String>) =
                redis::from_redis_value(value).map_err(|e| e.to_string())?;
            Ok(Reply::Is(version.zip(text)))
        }
        Command::Replace { .. } => {
            let (is_done, version, text): (bool, u64, String) =
                redis::from_redis_value(value).map_err(|e| e.to_string())?;
            Ok(match (is_done, version) {
                (true, version) => Reply::Replaced(version),
                (false, 0) => Reply::Is(None),
                (false, version) => Reply::Is(Some((version, text))),
            })
        }
    }
}

struct RedisNews {
    news: RedisConnection,
    /// Connection for reading records, because a subscribed connection cannot execute other commands.
    records: RedisConnection,
}

impl News for RedisNews {
    fn load(&mut self, each: &mut dyn FnMut(u64, String)) -> Result<(), Failure> {
        let mut cursor = 0_u64;
        loop {
            let mut scan = redis::cmd("SCAN");
            scan.arg(cursor).arg("MATCH").arg(format!("{USERS}*")).arg("COUNT").arg(SCANNED);
            let (next, keys): (u64, Vec<String>) = scan.query(&mut self.records).map_err(text)?;
            let mut pipe = redis::pipe();
            keys.iter().for_each(|key| _ = pipe.cmd("HMGET").arg(key).arg(&["version", "text"]));
            if !keys.is_empty() {
                let found: Vec<(Option<u64>, Option<String>)> =
                    pipe.query(&mut self.records).map_err(text)?;
                for (version, text) in found.into_iter().filter_map(|(version, text)| version.zip(text)) {
                    each(version, text);
                }
            }
            if next == 0 {
                return Ok(());
            }
            cursor = next;
        }
    }

    fn next(&mut self, limit: Duration) -> Result<Option<Event>, Failure> {
        self.news.set_read_limit(limit).map_err(text)?;
        let value = match self.news.receive() {
            Err(error) if error.is_timeout() => return Ok(None),
            value => value.map_err(text)?,
        };
        let (_, _, said): (String, String, String) =
            redis::from_redis_value(value).map_err(|e| e.to_string())?;
        event_of(&said).map(Some).ok_or_else(|| format!("an unknown program writes to {CHANNEL}"))
    }
}
