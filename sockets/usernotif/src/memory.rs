//! The memory of a program under the filter. The program may be hostile and change its memory at any time, so only a copy of each part is
//! examined.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::rc::Rc;

/// Limit on the buffers of one call (`UIO_MAXIOV`).
const BUFFERS_MAX: usize = 1024;
/// Length of `struct iovec`, in bytes.
const BUFFER_LENGTH: usize = 16;

/// A result of a call: a value, or errno.
pub(crate) type Outcome<T = i64> = Result<T, i32>;

/// A part of a program's memory: address and length, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) at: u64,
    pub(crate) length: usize,
}

/// The memory of the program that a thread runs when this value is created. After an `exec`, nothing can be read or written any more.
#[derive(Clone, Debug)]
pub(crate) struct Memory(Rc<File>);

impl Memory {
    /// Opens the memory of the program that a thread runs now. Errors: `EPERM` if this process lacks the permission.
    pub(crate) fn of(thread: i32) -> Outcome<Memory> {
        let file = File::options().read(true).write(true).open(format!("/proc/{thread}/mem"));
        match file {
            Ok(file) => Ok(Memory(Rc::new(file))),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(libc::EPERM),
            Err(error) => Err(error.raw_os_error().unwrap_or(libc::EFAULT)),
        }
    }

    /// Copies a span. Errors: `EFAULT`, as from the kernel.
    pub(crate) fn read(&self, at: u64, length: usize) -> Outcome<Vec<u8>> {
        self.gather(&[Span { at, length }])
    }

    /// Reads an array of bytes.
    pub(crate) fn read_array<const N: usize>(&self, at: u64) -> Outcome<[u8; N]> {
        let mut bytes = [0; N];
        self.0.read_exact_at(&mut bytes, at).map_err(fault)?;
        Ok(bytes)
    }

    pub(crate) fn read_u32(&self, at: u64) -> Outcome<u32> {
        self.read_array(at).map(u32::from_ne_bytes)
    }

    /// Copies several spans, one after the other.
    pub(crate) fn gather(&self, spans: &[Span]) -> Outcome<Vec<u8>> {
        let mut bytes = vec![0; total(spans)];
        let mut rest = &mut bytes[..];
        for span in spans {
            let (part, behind) = rest.split_at_mut(span.length);
            self.0.read_exact_at(part, span.at).map_err(fault)?;
            rest = behind;
        }
        Ok(bytes)
    }

    /// Writes bytes.
    pub(crate) fn write(&self, at: u64, bytes: &[u8]) -> Outcome<()> {
        self.0.write_all_at(bytes, at).map_err(fault)
    }

    /// Writes bytes into several spans, one after the other, until the bytes or the spans end.
    pub(crate) fn scatter(&self, spans: &[Span], bytes: &[u8]) -> Outcome<()> {
        let mut rest = bytes;
        for span in spans {
            let (part, behind) = rest.split_at(span.length.min(rest.len()));
            self.write(span.at, part)?;
            rest = behind;
        }
        Ok(())
    }

    /// Reads a list of buffers (`struct iovec`). Errors: `too_many` for more than [`BUFFERS_MAX`] buffers, `EINVAL` for a negative length,
    /// and `EFAULT`.
    pub(crate) fn buffers(&self, at: u64, count: u64, too_many: i32) -> Outcome<Vec<Span>> {
        let count = usize::try_from(count).ok().filter(|count| *count <= BUFFERS_MAX).ok_or(too_many)?;
        let list = self.read(at, count * BUFFER_LENGTH)?;
        list.chunks_exact(BUFFER_LENGTH)
            .map(|buffer| {
                let (at, length) = (long(buffer, 0), long(buffer, 8));
                // The length must not be negative as `ssize_t`.
                let length = isize::try_from(length).ok().and_then(|length| usize::try_from(length).ok());
                Ok(Span { at, length: length.ok_or(libc::EINVAL)? })
            })
            .collect()
    }
}

/// Returns the total length of the spans, in bytes.
pub(crate) fn total(spans: &[Span]) -> usize {
    spans.iter().fold(0, |total, span| total.saturating_add(span.length))
}

/// Converts an error to `EFAULT`. At an address without memory, `/proc/…/mem` reports `EIO`, but a system call reports `EFAULT`.
fn fault(_: io::Error) -> i32 {
    libc::EFAULT
}

/// Reads a number of eight bytes.
pub(crate) fn long(bytes: &[u8], at: usize) -> u64 {
    bytes[at..].first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> Memory {
        Memory::of(i32::try_from(std::process::id()).unwrap()).unwrap()
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
        assert_eq!(own().read(span(one).at, 2), Ok(b"xy".to_vec()));
        assert_eq!(own().read(span(other).at, 4), Ok(b"z\0\0\0".to_vec()));
    }

    #[test]
    fn addresses_without_memory_are_errors() {
        for at in [8, u64::MAX - 2] {
            assert_eq!(own().read(at, 4), Err(libc::EFAULT));
            assert_eq!(own().write(at, b"x"), Err(libc::EFAULT));
        }
        assert_eq!(own().read(8, 0), Ok(Vec::new()));
        assert_eq!(own().buffers(8, 1025, libc::EMSGSIZE), Err(libc::EMSGSIZE));
    }

    #[test]
    fn a_buffer_of_negative_length_is_an_error() {
        let mut list = [0; 16];
        list[8..].copy_from_slice(&(-1_i64).to_ne_bytes());
        assert_eq!(own().buffers(span(&list).at, 1, libc::EINVAL), Err(libc::EINVAL));
    }

    #[test]
    fn the_memory_of_a_program_is_not_readable_after_exec() {
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", "read x; exec sleep 60"]).stdin(std::process::Stdio::piped());
        let mut child = shell.spawn().unwrap();
        let thread = i32::try_from(child.id()).unwrap();
        let memory = Memory::of(thread).unwrap();
        let maps = std::fs::read_to_string(format!("/proc/{thread}/maps")).unwrap();
        let stack = maps.lines().find(|line| line.ends_with("[stack]")).unwrap();
        let end = stack.split(['-', ' ']).nth(1).unwrap();
        let at = u64::from_str_radix(end, 16).unwrap() - 16;
        assert!(memory.read(at, 8).is_ok());
        drop(child.stdin.take());
        let is_over = || memory.read(at, 8) == Err(libc::EFAULT);
        let waited = (0..500).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            is_over()
        });
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(waited, "the new program's memory is not the old one's");
    }
}
