//! The control socket of a link: a file `NAME.sock` in a directory. If `linkemu` creates the directory, only the directory's owner
//! may enter it.
//!
//! Each connection carries one request and one answer. The request and the answer are one line of JSON each. A thread serves the
//! connections, and another thread passes the packets, so a slow client does not delay packets. Begin at [`serve`] and [`ask`].

use std::convert::Infallible;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::time::Duration;

use crate::error::LinkemuError;
use crate::report::{Answer, Report, Request};

/// Time limit on the link's answer to the socket's thread, and on writes to the socket. The limit on reads from the socket is
/// twice this time, because the client's read includes the wait for the link's answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// Limit on the length of a request and of an answer, in bytes.
const LINE_MAX: u64 = 256 << 10;
/// Limit on the number of requests that wait for the link.
const WAITING_MAX: usize = 16;
/// Suffix of the names of socket files.
const SUFFIX: &str = ".sock";

/// A request that waits for the link's answer.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) request: Request,
    reply: Sender<Answer>,
    /// A channel without messages. The channel disconnects when the socket's thread has written the answer to the client.
    written: Receiver<Infallible>,
}

impl Asked {
    /// Sends the answer to the client.
    pub(crate) fn answer(self, answer: Answer) {
        // If the socket's thread no longer waits for the answer, the answer is discarded.
        let _ = self.reply.send(answer);
    }

    /// Sends the answer, and waits up to [`PATIENCE`] until the socket's thread has written the answer to the client. After this
    /// wait, the process can end without the loss of the answer.
    pub(crate) fn answer_at_last(self, answer: Answer) {
        if self.reply.send(answer).is_ok() {
            let _ = self.written.recv_timeout(PATIENCE);
        }
    }
}

/// The link's side of the control socket. A dropped `Served` removes the socket's file.
#[derive(Debug)]
pub(crate) struct Served {
    path: PathBuf,
    /// Requests from clients.
    pub(crate) asked: Receiver<Asked>,
    /// A socket that becomes readable when a request arrives. The bytes in this socket have no meaning.
    pub(crate) news: UnixStream,
}

impl Drop for Served {
    fn drop(&mut self) {
        // An error is ignored, because another process may have removed the file already.
        let _ = std::fs::remove_file(&self.path);
    }
}

fn path_of(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!("{name}{SUFFIX}"))
}

/// Opens the control socket of a link, and serves clients in a separate thread.
///
/// # Errors
/// [`LinkemuError::Exists`] if a link of this name runs, and [`LinkemuError::File`] if the directory cannot be written.
/// [`LinkemuError::System`] if the kernel refuses to create a pair of sockets.
pub(crate) fn serve(dir: &Path, name: &str) -> Result<Served, LinkemuError> {
    if !dir.exists() {
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir);
        made.map_err(LinkemuError::file(dir))?;
    }
    let path = path_of(dir, name);
    if UnixStream::connect(&path).is_ok() {
        return Err(LinkemuError::Exists { name: name.to_owned() });
    }
    // A socket file without a listener was left by a killed process.
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path).map_err(LinkemuError::file(&path))?;
    let (to_link, asked) = sync_channel(WAITING_MAX);
    let (news, waker) = UnixStream::pair().map_err(LinkemuError::system("create a pair of sockets"))?;
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // An error concerns this client only. For example, the client has disconnected, or has sent no request within the time
            // limit.
            let _ = take(&stream, &to_link, &waker);
        }
    });
    Ok(Served { path, asked, news })
}

fn take(mut stream: &UnixStream, to_link: &SyncSender<Asked>, mut waker: &UnixStream) -> std::io::Result<()> {
    let request = read_line(stream)?;
    let (_until_written, written) = channel();
    let answer = match serde_json::from_str(&request) {
        Err(error) => Err(format!("not a request: {error}")),
        Ok(request) => {
            let (reply, answers) = channel();
            let sent = to_link.try_send(Asked { request, reply, written });
            // The write fails if the link is ending and has closed its end of the pair. An error is ignored, because the link may
            // still answer this request.
            let _ = waker.write_all(&[1]);
            match sent.map(|()| answers.recv_timeout(PATIENCE)) {
                Ok(Ok(answer)) => answer,
                _ => Err("it is overloaded or ending".to_owned()),
            }
        }
    };
    let mut line = serde_json::to_vec(&answer)?;
    line.push(b'\n');
    stream.write_all(&line)
}

fn read_line(stream: &UnixStream) -> std::io::Result<String> {
    stream.set_read_timeout(Some(PATIENCE + PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut line = String::new();
    BufReader::new(stream.take(LINE_MAX)).read_line(&mut line)?;
    Ok(line)
}

/// Sends a request to a link, and returns the link's report.
///
/// # Errors
/// - [`LinkemuError::Missing`] if no link of this name runs.
/// - [`LinkemuError::Refused`] if the link refuses the request or sends an invalid answer.
/// - [`LinkemuError::File`] if the socket fails.
pub(crate) fn ask(dir: &Path, name: &str, request: &Request) -> Result<Report, LinkemuError> {
    let path = path_of(dir, name);
    let mut stream = match UnixStream::connect(&path) {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => {
            return Err(LinkemuError::Missing { name: name.to_owned(), dir: dir.to_owned() });
        }
        outcome => outcome.map_err(LinkemuError::file(&path))?,
    };
    let mut line = serde_json::to_vec(request).unwrap_or_default();
    line.push(b'\n');
    stream.write_all(&line).map_err(LinkemuError::file(&path))?;
    let line = read_line(&stream).map_err(LinkemuError::file(&path))?;
    let refused = |problem| LinkemuError::Refused { name: name.to_owned(), problem };
    let answer: Answer = serde_json::from_str(&line).map_err(|error| {
        refused(format!("it sent an invalid answer ({error}): it may be of another version"))
    })?;
    answer.map(|report| *report).map_err(refused)
}

/// Returns two sorted lists: the names of the running links, and the names of the links whose process was killed. Removes the
/// socket files of the killed links. If the directory does not exist, both lists are empty.
///
/// # Errors
/// [`LinkemuError::File`] if the directory cannot be read.
pub(crate) fn names(dir: &Path) -> Result<(Vec<String>, Vec<String>), LinkemuError> {
    let entries = match std::fs::read_dir(dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok((Vec::new(), Vec::new())),
        outcome => outcome.map_err(LinkemuError::file(dir))?,
    };
    let files = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> =
        files.filter_map(|file| file.strip_suffix(SUFFIX).map(str::to_owned)).collect();
    names.sort();
    let is_dead = |name: &String| {
        let path = path_of(dir, name);
        let refused = |error: std::io::Error| error.kind() == ErrorKind::ConnectionRefused;
        UnixStream::connect(&path).is_err_and(refused) && std::fs::remove_file(&path).is_ok()
    };
    Ok(names.into_iter().partition(|name| !is_dead(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_reaches_its_link_and_the_answer_reaches_the_requester() {
        let dir = tempfile::tempdir().unwrap();
        let served = serve(dir.path(), "x").unwrap();
        let link = std::thread::spawn(move || {
            let asked = served.asked.recv().unwrap();
            drop(served);
            let request = asked.request.clone();
            asked.answer_at_last(Err(format!("{request:?}")));
        });
        let error = ask(dir.path(), "x", &Request::Stop).unwrap_err().to_string();
        assert_eq!(error, "link x: Stop");
        link.join().unwrap();
    }

    #[test]
    fn a_name_is_served_once_and_free_again_when_its_process_has_ended_or_was_killed() {
        let dir = tempfile::tempdir().unwrap();
        let first = serve(dir.path(), "x").unwrap();
        assert!(matches!(serve(dir.path(), "x"), Err(LinkemuError::Exists { .. })));
        drop(first);
        assert!(matches!(ask(dir.path(), "x", &Request::Show), Err(LinkemuError::Missing { .. })));
        // A killed process leaves a socket file without a listener.
        drop(UnixListener::bind(path_of(dir.path(), "y")).unwrap());
        assert_eq!(names(dir.path()).unwrap(), (vec![], vec!["y".to_owned()]));
        assert_eq!(names(dir.path()).unwrap(), (vec![], vec![]));
    }

    #[test]
    fn a_malformed_request_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        let _served = serve(dir.path(), "x").unwrap();
        let mut stream = UnixStream::connect(path_of(dir.path(), "x")).unwrap();
        stream.write_all(b"hello\n").unwrap();
        assert!(read_line(&stream).unwrap().contains("not a request"));
    }
}
