//! Table of the process's descriptors: which of them are sctpify's sockets, and what earlier calls have found out about these
//! sockets.
//!
//! The table is a cache. If an entry is 0, the descriptor's name in the kernel shows whether the descriptor is an sctpify socket. A
//! forked child begins with a copy of the table. After `exec`, the table is empty.

use core::ffi::{c_int, c_long};
use core::mem::{MaybeUninit, offset_of};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU16, AtomicU32, AtomicU64, Ordering};

use libc::{sockaddr_un, socklen_t};
use sockproto::{DATA_HEADER, MANY_NAME_PREFIX, PEER_LENGTH, SOCKET_NAME_PREFIX, SockAddr};

use crate::real;

/// Number of descriptors in the table. For a higher descriptor, each call reads the name from the kernel.
pub const REMEMBERED: usize = 65_536;
/// Number of attempts to take a descriptor's lock before the caller checks that the holder of the lock still exists.
const LOCK_ATTEMPTS: usize = 1000;
/// Number of pauses after which a caller goes on without the lock that another process holds.
const LOCK_PAUSES: usize = 100;
/// Length of such a pause, in milliseconds.
const LOCK_PAUSE_MS: c_int = 10;
/// For each descriptor, the ID of the thread that holds the lock for reading; 0: no thread.
static READERS: [AtomicI32; REMEMBERED] = [const { AtomicI32::new(0) }; REMEMBERED];

/// Bits of an entry.
pub(crate) mod bit {
    /// The entry is valid.
    pub(crate) const KNOWN: u16 = 1;
    /// The descriptor is an sctpify socket.
    pub(crate) const OURS: u16 = 2;
    /// The socket listens.
    pub(crate) const LISTENING: u16 = 4;
    /// A part of the socket's first message was read. `SO_PEEK_OFF` is the position.
    pub(crate) const PARTIAL: u16 = 8;
    /// The socket is or was connected. On a one-to-many socket, the bit means that the socket listens, or that it has or had an
    /// association.
    pub(crate) const CONNECTED: u16 = 16;
    /// A call has reported to the program that the server has ended.
    pub(crate) const DEAD: u16 = 32;
    /// The program has shut the socket down for reading.
    pub(crate) const READ_OVER: u16 = 64;
    /// The socket is a one-to-many socket.
    pub(crate) const MANY: u16 = 128;
    /// The program forbids fragmentation of messages (`SCTP_DISABLE_FRAGMENTS`).
    pub(crate) const UNFRAGMENTED: u16 = 256;
    /// The program has requested the ancillary data `SCTP_RCVINFO` with each message.
    pub(crate) const WANTS_RCVINFO: u16 = 512;
    /// The program has requested the ancillary data `SCTP_NXTINFO` with each message.
    pub(crate) const WANTS_NXTINFO: u16 = 1024;
    /// The descriptor is a copy of another process's descriptor. Calls on it must not wait.
    pub(crate) const ON_BEHALF: u16 = 2048;
    /// The socket was peeled off a one-to-many socket.
    pub(crate) const PEELED: u16 = 4096;
    /// Bits that belong to the descriptor. The other bits belong to the socket, and thus to all its descriptors.
    pub(crate) const OF_DESCRIPTOR: u16 = KNOWN | OURS | ON_BEHALF;
}

/// Bits of each descriptor; 0: unknown.
static ENTRIES: [AtomicU16; REMEMBERED] = [const { AtomicU16::new(0) }; REMEMBERED];
/// Number of outbound streams of each socket; 0: unknown.
static STREAMS: [AtomicU16; REMEMBERED] = [const { AtomicU16::new(0) }; REMEMBERED];
/// Peer's address of each socket: 32 bytes in four words, and the address's length in the fifth word. A length of 0: unknown.
static PEERS: [[AtomicU64; 5]; REMEMBERED] = [const { [const { AtomicU64::new(0) }; 5] }; REMEMBERED];

fn entry(fd: c_int) -> Option<&'static AtomicU16> {
    ENTRIES.get(usize::try_from(fd).ok()?)
}

/// Reports whether a descriptor is an sctpify socket.
pub fn is_ours(fd: c_int) -> bool {
    let Some(entry) = entry(fd) else { return fd >= 0 && style_by_name(fd).is_some() };
    let known = entry.load(Ordering::Relaxed);
    if known & bit::KNOWN != 0 {
        return known & bit::OURS != 0;
    }
    let errno = crate::errno();
    let style = style_by_name(fd);
    crate::set_errno(errno);
    let is_ours = style.is_some();
    if is_ours {
        // Another process has opened the socket, or a descriptor was copied unnoticed.
        share();
    }
    let mut bits = bit::KNOWN | style.unwrap_or(0);
    if is_ours && crate::recv::peek_offset(fd).is_some_and(|offset| offset > 0) {
        bits |= bit::PARTIAL;
    }
    entry.store(bits, Ordering::Relaxed);
    is_ours
}

/// Returns the bits that the socket's name in the kernel implies: [`bit::OURS`], and [`bit::MANY`] for a one-to-many socket. Returns `None`
/// if the descriptor is not an sctpify socket.
fn style_by_name(fd: c_int) -> Option<u16> {
    let mut address = MaybeUninit::<sockaddr_un>::zeroed();
    let mut length = socklen_t::try_from(size_of::<sockaddr_un>()).unwrap_or(0);
    // SAFETY: the buffer has this length.
    let result = unsafe { real::getsockname(fd, address.as_mut_ptr().cast(), &raw mut length) };
    if result != 0 {
        return None;
    }
    // SAFETY: zeroes are a valid address, and so are any bytes that the kernel has written over them.
    let address = unsafe { address.assume_init() };
    let path = address.sun_path.map(c_char_byte);
    let length = usize::try_from(length).unwrap_or(0).saturating_sub(offset_of!(sockaddr_un, sun_path));
    let name = path.get(..length).filter(|_| c_int::from(address.sun_family) == libc::AF_UNIX)?;
    match name {
        _ if name.starts_with(MANY_NAME_PREFIX) => Some(bit::OURS | bit::MANY),
        _ if name.starts_with(SOCKET_NAME_PREFIX) => Some(bit::OURS),
        _ => None,
    }
}

#[allow(clippy::cast_sign_loss, reason = "the bytes of a name have no sign")]
const fn c_char_byte(byte: core::ffi::c_char) -> u8 {
    byte as u8
}

/// Reports whether an sctpify socket is a one-to-many socket.
pub fn is_one_to_many(fd: c_int) -> bool {
    match entry(fd) {
        // Another thread may have cleared the entry; is_ours then sets it again.
        Some(entry) => is_ours(fd) && entry.load(Ordering::Relaxed) & bit::MANY != 0,
        None => style_by_name(fd).is_some_and(|style| style & bit::MANY != 0),
    }
}

/// Returns the number of bytes that precede the data in a socket's messages.
pub(crate) fn prefix(fd: c_int) -> usize {
    if is_one_to_many(fd) { DATA_HEADER + PEER_LENGTH } else { DATA_HEADER }
}

/// Enters a descriptor as an sctpify socket with these additional bits.
pub(crate) fn add(fd: c_int, bits: u16) {
    if let Some(entry) = entry(fd) {
        entry.store(bit::KNOWN | bit::OURS | bits, Ordering::Relaxed);
        GENERATIONS[usize::try_from(fd).unwrap_or(0)].fetch_add(1, Ordering::Relaxed);
        forget_facts(fd);
    }
}

/// Facts about a socket: its kind, and what earlier calls have found out about it. The facts apply to all descriptors of the
/// socket.
#[derive(Clone, Copy, Debug, Default)]
pub struct Facts {
    bits: u16,
    streams: u16,
    peer: Option<SockAddr>,
    /// Number that identifies the socket among the sockets that have had the same descriptor, or the number from
    /// [`Facts::numbered`].
    generation: u16,
}

impl Facts {
    /// Sets a number that identifies the socket in the cache of associations. The number replaces the descriptor, which is only a
    /// copy.
    pub fn numbered(self, generation: u16) -> Facts {
        Facts { generation, ..self }
    }

    /// Returns the peer's address, if it is known.
    pub fn peer(&self) -> Option<SockAddr> {
        self.peer
    }
}

/// Enters a descriptor as a copy of another process's descriptor, for a socket with these facts.
pub fn put(fd: c_int, facts: &Facts) {
    add(fd, facts.bits | bit::ON_BEHALF);
    if let Some(generation) = generation(fd) {
        generation.store(facts.generation, Ordering::Relaxed);
    }
    set_streams(fd, facts.streams);
    if let Some(peer) = &facts.peer {
        set_peer(fd, peer.as_bytes());
    }
}

/// Returns the known facts of a socket, and removes its descriptor from the table.
pub fn take(fd: c_int) -> Facts {
    let bits = entry(fd).map_or(0, |entry| entry.load(Ordering::Relaxed)) & !bit::OF_DESCRIPTOR;
    let peer = peer(fd).and_then(|(bytes, length)| SockAddr::read(&bytes[..length]).ok());
    let generation = generation(fd).map_or(0, |generation| generation.load(Ordering::Relaxed));
    let facts = Facts { bits, streams: streams(fd).unwrap_or(0), peer, generation };
    forget(fd);
    facts
}

/// Removes a descriptor from the table. Callers use this function if the number refers to another file, or soon will refer to
/// another file.
pub fn forget(fd: c_int) {
    if let Some(entry) = entry(fd) {
        entry.store(0, Ordering::Relaxed);
        forget_facts(fd);
    }
}

/// Removes all descriptors from `first` to `last`, inclusive, from the table.
pub fn forget_range(first: usize, last: usize) {
    let entries = ENTRIES.iter().enumerate().take(last.saturating_add(1)).skip(first);
    for (fd, _) in entries.filter(|(_, entry)| entry.load(Ordering::Relaxed) != 0) {
        forget(c_int::try_from(fd).unwrap_or(-1));
    }
}

fn forget_facts(fd: c_int) {
    let Ok(index) = usize::try_from(fd) else { return };
    if STREAMS[index].load(Ordering::Relaxed) != 0 {
        STREAMS[index].store(0, Ordering::Relaxed);
    }
    if PEERS[index][4].load(Ordering::Relaxed) != 0 {
        PEERS[index][4].store(0, Ordering::Relaxed);
    }
}

/// Reports whether all these bits are set.
pub(crate) fn has(fd: c_int, bits: u16) -> bool {
    entry(fd).is_some_and(|entry| entry.load(Ordering::Relaxed) & bits == bits)
}

/// Sets bits.
pub(crate) fn set(fd: c_int, bits: u16) {
    if let Some(entry) = entry(fd) {
        entry.fetch_or(bits, Ordering::Relaxed);
    }
}

/// Clears bits.
pub(crate) fn clear(fd: c_int, bits: u16) {
    if let Some(entry) = entry(fd) {
        entry.fetch_and(!bits, Ordering::Relaxed);
    }
}

/// True if other processes may read from this process's sockets, because this process has forked, or got a socket from another process.
static ARE_SHARED: AtomicBool = AtomicBool::new(false);

/// Notes that other processes may read from this process's sockets from now on.
pub fn share() {
    ARE_SHARED.store(true, Ordering::Relaxed);
}

/// Reports whether other processes may read from this process's sockets.
pub(crate) fn are_shared() -> bool {
    ARE_SHARED.load(Ordering::Relaxed)
}

/// The right to read from a descriptor.
pub(crate) struct Lock {
    reader: Option<&'static AtomicI32>,
    /// The descriptor, if the socket is locked against other processes.
    file: Option<c_int>,
}

/// Takes the lock of a descriptor, and waits while another thread, or another process that has the socket, holds it.
///
/// If the calling thread already holds the lock, the call comes from a signal handler and continues without the lock.
pub(crate) fn lock(fd: c_int) -> Lock {
    let reader = usize::try_from(fd).ok().and_then(|index| READERS.get(index));
    if reader.is_some_and(|reader| !lock_threads(reader)) {
        return Lock { reader: None, file: None };
    }
    let is_locked = are_shared() && lock_file(fd, libc::F_WRLCK);
    Lock { reader, file: is_locked.then_some(fd) }
}

/// Waits while another thread holds the lock. Returns false if the calling thread already holds it. If the holder does not exist in this
/// process, it was a thread of the parent process before fork(2). In this case, the caller takes over the lock.
fn lock_threads(reader: &AtomicI32) -> bool {
    let own = thread();
    loop {
        for _ in 0..LOCK_ATTEMPTS {
            match reader.compare_exchange(0, own, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(holder) if holder == own => return false,
                // SAFETY: sched_yield(2) has no preconditions.
                Err(_) => unsafe { libc::sched_yield() },
            };
        }
        let holder = reader.load(Ordering::Relaxed);
        let is_gone = holder != 0 && !exists(holder);
        if is_gone && reader.compare_exchange(holder, own, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            return true;
        }
    }
}

/// Locks the socket against other processes, or unlocks it: a lock of POSIX on the socket's inode. The kernel removes the lock of a
/// process that ends. Returns false if the kernel refuses, or another process holds the lock for about a second. A process that was
/// stopped, or that keeps the lock on purpose, thus holds up no call that must not wait.
fn lock_file(fd: c_int, kind: c_int) -> bool {
    let errno = crate::errno();
    // SAFETY: zeroes are a valid lock, of the whole file.
    let mut whole: libc::flock = unsafe { core::mem::zeroed() };
    whole.l_type = kind as _;
    let mut outcome = false;
    for attempt in 0..LOCK_ATTEMPTS + LOCK_PAUSES {
        // SAFETY: the lock is valid during the call.
        let result = unsafe { real::fcntl(fd, libc::F_SETLK, (&raw const whole) as c_long) };
        outcome = result == 0;
        if outcome || !matches!(crate::errno(), libc::EAGAIN | libc::EACCES) {
            break;
        }
        match attempt < LOCK_ATTEMPTS {
            // SAFETY: sched_yield(2) has no preconditions.
            true => unsafe { libc::sched_yield() },
            // SAFETY: the list is empty.
            false => unsafe { real::poll(core::ptr::null_mut(), 0, LOCK_PAUSE_MS) },
        };
    }
    crate::set_errno(errno);
    outcome
}

fn thread() -> c_int {
    // SAFETY: gettid(2) has no preconditions.
    unsafe { libc::gettid() }
}

/// Reports whether this process has a thread with this ID.
fn exists(thread: c_int) -> bool {
    let errno = crate::errno();
    // SAFETY: signal 0 only checks that the thread exists.
    let result = unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, 0) };
    crate::set_errno(errno);
    result == 0
}

impl Drop for Lock {
    fn drop(&mut self) {
        if let Some(fd) = self.file {
            lock_file(fd, libc::F_UNLCK);
        }
        if let Some(reader) = self.reader {
            reader.store(0, Ordering::Release);
        }
    }
}

/// Number of places in the cache of one-to-many sockets' associations. A hash of socket and identifier selects the place.
const ASSOCIATIONS: usize = 4096;
/// Greatest age of a valid cached association, in seconds: the difference of two readings of the clock [`seconds`].
const ASSOCIATION_LIFE: u32 = 1;
/// Cached associations: the socket's number in 16 bits, the association's identifier in 32 bits, and the number of outbound streams
/// in 16 bits. The socket's number is its descriptor, or the number of [`Facts::numbered`] if the descriptor is a copy of another
/// process's descriptor.
static KNOWN_ASSOCIATIONS: [AtomicU64; ASSOCIATIONS] = [const { AtomicU64::new(0) }; ASSOCIATIONS];
/// For each place, the time at which the cached association was last known to exist, in seconds of the clock [`seconds`].
static ASKED_AT: [AtomicU32; ASSOCIATIONS] = [const { AtomicU32::new(0) }; ASSOCIATIONS];

fn place_of(fd: c_int, id: c_int) -> Option<(usize, u64)> {
    let socket = match has(fd, bit::ON_BEHALF) {
        true => generation(fd)?.load(Ordering::Relaxed),
        false => u16::try_from(fd).ok()?,
    };
    let id = u32::try_from(id).ok()?;
    let mixed = (u64::from(id) << 16 | u64::from(socket)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    Some((usize::try_from(mixed >> 52).ok()? % ASSOCIATIONS, u64::from(socket) << 48 | u64::from(id) << 16))
}

/// For each descriptor, the number that identifies its socket: the count of sockets that have had this descriptor, or the number
/// from [`Facts::numbered`].
static GENERATIONS: [AtomicU16; REMEMBERED] = [const { AtomicU16::new(0) }; REMEMBERED];

fn generation(fd: c_int) -> Option<&'static AtomicU16> {
    GENERATIONS.get(usize::try_from(fd).ok()?)
}

/// Returns a hash of an address and this socket. The hash is 2^30 or higher, so it differs from identifiers of associations, which
/// are lower in practice.
pub(crate) fn hash(fd: c_int, address: &[u8]) -> c_int {
    let generation = generation(fd).map_or(0, |generation| generation.load(Ordering::Relaxed));
    let bytes = generation.to_ne_bytes().into_iter().chain(address.iter().copied());
    // The hash function is FNV-1a.
    let mixed = bytes.fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    (mixed >> 2 | 1 << 30).cast_signed()
}

/// Returns the number of outbound streams of a one-to-many socket's association, if the cached entry is valid ([`ASSOCIATION_LIFE`]).
pub(crate) fn association_streams(fd: c_int, id: c_int) -> Option<u16> {
    let (place, key) = place_of(fd, id)?;
    let known = KNOWN_ASSOCIATIONS[place].load(Ordering::Acquire);
    let age = seconds().wrapping_sub(ASKED_AT[place].load(Ordering::Relaxed));
    let streams = u16::try_from(known & 0xffff).unwrap_or(0);
    (known & !0xffff == key && age <= ASSOCIATION_LIFE).then_some(streams)
}

/// Enters the number of outbound streams of an association in the cache.
pub(crate) fn set_association_streams(fd: c_int, id: c_int, streams: u16) {
    if let Some((place, key)) = place_of(fd, id) {
        ASKED_AT[place].store(seconds(), Ordering::Relaxed);
        KNOWN_ASSOCIATIONS[place].store(key | u64::from(streams), Ordering::Release);
    }
}

/// Removes an association from the cache, because it may have ended or moved to another socket.
pub(crate) fn forget_association(fd: c_int, id: c_int) {
    if let Some((place, key)) = place_of(fd, id)
        && KNOWN_ASSOCIATIONS[place].load(Ordering::Relaxed) & !0xffff == key
    {
        KNOWN_ASSOCIATIONS[place].store(0, Ordering::Relaxed);
    }
}

/// Returns the time of the monotonic clock in seconds.
#[allow(clippy::cast_sign_loss, clippy::cast_possible_truncation, reason = "differences count")]
pub(crate) fn seconds() -> u32 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is valid.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &raw mut time) };
    time.tv_sec as u32
}

/// Returns the number of outbound streams of a connected socket, if it is known.
pub(crate) fn streams(fd: c_int) -> Option<u16> {
    let known = STREAMS.get(usize::try_from(fd).ok()?)?.load(Ordering::Relaxed);
    (known != 0).then_some(known)
}

/// Enters the number of outbound streams of a connected socket.
pub(crate) fn set_streams(fd: c_int, streams: u16) {
    if let Some(known) = usize::try_from(fd).ok().and_then(|index| STREAMS.get(index)) {
        known.store(streams, Ordering::Relaxed);
    }
}

/// Returns the peer's address, if it is known: the bytes and their number.
pub(crate) fn peer(fd: c_int) -> Option<([u8; 32], usize)> {
    let words = PEERS.get(usize::try_from(fd).ok()?)?;
    let length = usize::try_from(words[4].load(Ordering::Acquire)).ok().filter(|length| *length != 0)?;
    let mut bytes = [0; 32];
    for (chunk, word) in bytes.chunks_exact_mut(8).zip(words) {
        chunk.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
    }
    Some((bytes, length))
}

/// Enters the peer's address.
pub(crate) fn set_peer(fd: c_int, address: &[u8]) {
    let Some(words) = usize::try_from(fd).ok().and_then(|index| PEERS.get(index)) else { return };
    let mut bytes = [0; 32];
    let length = address.len().min(bytes.len());
    bytes[..length].copy_from_slice(&address[..length]);
    for (chunk, word) in bytes.chunks_exact(8).zip(words) {
        let mut of_chunk = [0; 8];
        of_chunk.copy_from_slice(chunk);
        word.store(u64::from_ne_bytes(of_chunk), Ordering::Relaxed);
    }
    words[4].store(length as u64, Ordering::Release);
}
