//! The memory of a program: hostile, so each part is copied once and then looked at.

use std::io::{IoSlice, IoSliceMut};

use nix::errno::Errno;
use nix::sys::uio::{RemoteIoVec, process_vm_readv, process_vm_writev};
use nix::unistd::Pid;

/// Most buffers of one call (`UIO_MAXIOV`).
const BUFFERS_MAX: usize = 1024;
/// Length of `struct iovec`.
const BUFFER_LENGTH: usize = 16;

/// A result of a call: a value, or errno.
pub(crate) type Outcome<T = i64> = Result<T, i32>;

/// A part of a program's memory: address and length, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) at: u64,
    pub(crate) length: usize,
}

/// The memory of the program that a thread belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory(Pid);

impl Memory {
    pub(crate) fn of(thread: i32) -> Memory {
        Memory(Pid::from_raw(thread))
    }

    /// Copies a span. Errors: `EFAULT`, as of the kernel; `EPERM` if this process may not read it.
    pub(crate) fn read(self, at: u64, length: usize) -> Outcome<Vec<u8>> {
        self.gather(&[Span { at, length }])
    }

    /// Reads an array of bytes.
    pub(crate) fn read_array<const N: usize>(self, at: u64) -> Outcome<[u8; N]> {
        let mut bytes = [0; N];
        self.read_into(&[Span { at, length: N }], &mut bytes)?;
        Ok(bytes)
    }

    pub(crate) fn read_u32(self, at: u64) -> Outcome<u32> {
        self.read_array(at).map(u32::from_ne_bytes)
    }

    /// Copies several spans behind each other.
    pub(crate) fn gather(self, spans: &[Span]) -> Outcome<Vec<u8>> {
        let mut bytes = vec![0; total(spans)];
        self.read_into(spans, &mut bytes)?;
        Ok(bytes)
    }

    fn read_into(self, spans: &[Span], bytes: &mut [u8]) -> Outcome<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let remote = remote(spans, bytes.len())?;
        let length = bytes.len();
        match process_vm_readv(self.0, &mut [IoSliceMut::new(bytes)], &remote) {
            Ok(read) if read == length => Ok(()),
            Ok(_) => Err(libc::EFAULT),
            Err(error) => Err(number_of(error)),
        }
    }

    /// Writes bytes.
    pub(crate) fn write(self, at: u64, bytes: &[u8]) -> Outcome<()> {
        self.scatter(&[Span { at, length: bytes.len() }], bytes)
    }

    /// Writes bytes into several spans, as far as they go.
    pub(crate) fn scatter(self, spans: &[Span], bytes: &[u8]) -> Outcome<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let remote = remote(spans, bytes.len())?;
        match process_vm_writev(self.0, &[IoSlice::new(bytes)], &remote) {
            Ok(written) if written == bytes.len() => Ok(()),
            Ok(_) => Err(libc::EFAULT),
            Err(error) => Err(number_of(error)),
        }
    }

    /// Reads a list of buffers (`struct iovec`). Errors: `EINVAL` or `EMSGSIZE` as `too_many` says; `EFAULT`.
    pub(crate) fn buffers(self, at: u64, count: u64, too_many: i32) -> Outcome<Vec<Span>> {
        let count = usize::try_from(count).ok().filter(|count| *count <= BUFFERS_MAX).ok_or(too_many)?;
        let list = self.read(at, count * BUFFER_LENGTH)?;
        list.chunks_exact(BUFFER_LENGTH)
            .map(|buffer| {
                let (at, length) = (long(buffer, 0), long(buffer, 8));
                // A length that is negative as ssize_t.
                let length = isize::try_from(length).ok().and_then(|length| usize::try_from(length).ok());
                Ok(Span { at, length: length.ok_or(libc::EINVAL)? })
            })
            .collect()
    }
}

/// Returns the spans' length together.
pub(crate) fn total(spans: &[Span]) -> usize {
    spans.iter().fold(0, |total, span| total.saturating_add(span.length))
}

/// Describes the first `length` bytes of some spans to the kernel.
fn remote(spans: &[Span], length: usize) -> Outcome<Vec<RemoteIoVec>> {
    let mut left = length;
    let mut list = Vec::with_capacity(spans.len());
    for span in spans {
        let len = span.length.min(left);
        left -= len;
        if len > 0 {
            let base = usize::try_from(span.at).map_err(|_| libc::EFAULT)?;
            list.push(RemoteIoVec { base, len });
        }
    }
    Ok(list)
}

fn number_of(error: Errno) -> i32 {
    match error {
        // It ends meanwhile, and needs no answer.
        Errno::ESRCH => libc::EFAULT,
        other => other as i32,
    }
}

/// Reads a number of eight bytes.
pub(crate) fn long(bytes: &[u8], at: usize) -> u64 {
    bytes[at..].first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> Memory {
        Memory::of(i32::try_from(std::process::id()).unwrap())
    }

    fn span(bytes: &[u8]) -> Span {
        Span { at: bytes.as_ptr().addr() as u64, length: bytes.len() }
    }

    #[test]
    fn spans_are_read_and_written_behind_each_other() {
        let (first, second) = (*b"abc", *b"defg");
        assert_eq!(own().gather(&[span(&first), span(b""), span(&second)]).unwrap(), b"abcdefg");
        let (one, other) = (Box::leak(vec![0; 2].into()), Box::leak(vec![0; 4].into()));
        own().scatter(&[span(one), span(other)], b"xyz").unwrap();
        assert_eq!(
            (own().read(span(one).at, 2), own().read(span(other).at, 4)),
            (Ok(b"xy".to_vec()), Ok(b"z\0\0\0".to_vec()))
        );
    }

    #[test]
    fn addresses_without_memory_are_errors() {
        assert_eq!(own().read(8, 4), Err(libc::EFAULT));
        assert_eq!(own().write(8, b"x"), Err(libc::EFAULT));
        assert_eq!(own().read(8, 0), Ok(Vec::new()));
        assert_eq!(own().buffers(8, 1025, libc::EMSGSIZE), Err(libc::EMSGSIZE));
    }

    #[test]
    fn a_buffer_of_negative_length_is_none() {
        let mut list = [0; 16];
        list[8..].copy_from_slice(&(-1_i64).to_ne_bytes());
        assert_eq!(own().buffers(span(&list).at, 1, libc::EINVAL), Err(libc::EINVAL));
    }
}
