//! The system calls that name, connect and accept sockets, access their options, and copy descriptors.

use libc::c_int;
use sockclient::{behalf, table};
use sockproto::abi::{SOL_SCTP, option};
use sockproto::{SOCKADDR_MAX, SockAddr};

use crate::call::{Call, Tell, Then, Verdict, Wait};
use crate::filter;
use crate::memory::{Memory, Outcome, long};
use crate::programs::{Programs, first_unprivileged_port};
use crate::sockets::{ParkedAs, READABLE, Socket, WRITABLE};

/// Limit on the length of a socket's name (`struct sockaddr_storage`), in bytes.
const NAME_MAX: usize = 128;
/// Limit on the length of an option's value, in bytes.
const OPTION_MAX: usize = 16 << 10;

/// Executes `bind(2)`.
pub(crate) fn bind(call: &Call, socket: &Socket<'_>) -> Outcome<c_int> {
    let address = address(call, 1, 2)?;
    may_bind(call, &address)?;
    behalf::bind(socket.number(), &address)
}

/// Reads an address that a program passes.
fn address(call: &Call, at: usize, length: usize) -> Outcome<Vec<u8>> {
    let length = usize::try_from(call.int(length)).map_err(|_| libc::EINVAL)?;
    let mut address = name(&call.memory, call.argument(at), length)?;
    // Programs may pass the length of a larger structure.
    let whole = SockAddr::read(&address).map_err(|_| libc::EINVAL)?.as_bytes().len();
    address.truncate(whole);
    Ok(address)
}

/// Reads a socket's name. Returns an empty name if the program passes no name.
pub(crate) fn name(memory: &Memory, at: u64, length: usize) -> Outcome<Vec<u8>> {
    match (at, length) {
        (0, _) | (_, 0) => Ok(Vec::new()),
        (_, length) if length > NAME_MAX => Err(libc::EINVAL),
        _ => memory.read(at, length),
    }
}

/// Refuses a privileged port to a thread that may not bind privileged ports. The server cannot check this, because it only sees the
/// supervisor's rights.
fn may_bind(call: &Call, addresses: &[u8]) -> Outcome<()> {
    let first = first_unprivileged_port();
    let mut ports = sockproto::read_addresses(addresses).flatten().map(|address| address.port());
    let is_low = ports.any(|port| port != 0 && port < first);
    if is_low && !call.may_bind_low { Err(libc::EACCES) } else { Ok(()) }
}

/// Writes the name of a socket into the program's memory, as getsockname(2) does.
pub(crate) fn tell_name(call: &Call, name: Outcome<([u8; SOCKADDR_MAX], usize)>) -> Outcome<c_int> {
    let (name, length) = name?;
    write_name(&call.memory, call.argument(1), call.argument(2), &name[..length])?;
    Ok(0)
}

/// Writes as much of a name as there is room for, and the name's full length.
pub(crate) fn write_name(memory: &Memory, at: u64, length: u64, name: &[u8]) -> Outcome<()> {
    let room = usize::try_from(memory.read_u32(length)?.cast_signed()).map_err(|_| libc::EINVAL)?;
    memory.write(at, &name[..name.len().min(room)])?;
    let whole = u32::try_from(name.len()).unwrap_or(0);
    memory.write(length, &whole.to_ne_bytes())
}

/// Executes `accept(2)` and `accept4(2)`.
pub(crate) fn accept(call: &Call, mut socket: Socket<'_>, programs: &mut Programs, flags: c_int) -> Verdict {
    let (name_at, length_at) = (call.argument(1), call.argument(2));
    if name_at != 0
        && let Err(error) = call.memory.read_u32(length_at)
    {
        return Verdict::Answer(Err(error));
    }
    // The number is chosen first, because an association that is taken out of the queue must get a descriptor.
    let number = match programs.free_number(call.notice.thread, 0) {
        Ok(number) => number,
        Err(error) => return Verdict::Answer(Err(error)),
    };
    let (fd, facts) = match behalf::accept(socket.number(), flags & libc::SOCK_NONBLOCK) {
        Ok(accepted) => accepted,
        Err(error) => return socket.park(call, error, true, ParkedAs::again(READABLE, 0)),
    };
    let peer = facts.peer();
    let noted = socket.note(&fd, facts).and_then(|()| match &peer {
        Some(peer) if name_at != 0 => write_name(&call.memory, name_at, length_at, peer.as_bytes()),
        _ => Ok(()),
    });
    noted.map(|()| Verdict::Give { fd, number, is_cloexec: flags & libc::SOCK_CLOEXEC != 0 }).into()
}

/// Executes `connect(2)`.
pub(crate) fn connect(call: &Call, socket: Socket<'_>) -> Verdict {
    match address(call, 1, 2) {
        Ok(address) => connect_to(call, socket, &address, Tell::Nothing),
        Err(error) => Verdict::Answer(Err(error)),
    }
}

/// Connects a socket to a packed list of addresses.
fn connect_to(call: &Call, socket: Socket<'_>, addresses: &[u8], tell: Tell) -> Verdict {
    let fd = socket.number();
    if table::is_one_to_many(fd) && !behalf::is_nonblocking(fd) {
        return attempt(call, &socket, addresses, tell).into();
    }
    let mut id = 0;
    match behalf::connect(fd, addresses, &mut id) {
        Ok(id) => Verdict::Answer(tell.tell(call, id)),
        Err(libc::EINPROGRESS) if id != 0 => {
            // libsctp expects the identifier before the association is established.
            if tell == Tell::Value
                && let Err(error) = tell.tell(call, id)
            {
                return Verdict::Answer(Err(error));
            }
            let then = Then::Connected(id, tell);
            let wait = ParkedAs { events: WRITABLE, then, interrupted: Some(libc::EINTR) };
            socket.park(call, libc::EINPROGRESS, true, wait)
        }
        Err(error) => Verdict::Answer(Err(error)),
    }
}

/// Lets a call wait until the server reports the end of an attempt to connect a one-to-many socket. The call cannot wait for the socket
/// itself, because the socket is writable during the attempt.
fn attempt(call: &Call, socket: &Socket<'_>, addresses: &[u8], tell: Tell) -> Outcome<Verdict> {
    let limit = behalf::time_limit(socket.number(), true);
    Ok(Verdict::Park(Box::new(Wait {
        call: call.clone(),
        fd: behalf::attempt(socket.number(), addresses)?,
        inode: 0,
        events: READABLE,
        limit: limit.map(|limit| (limit, Err(libc::EINPROGRESS))),
        then: Then::Attempted(tell),
        interrupted: Some(libc::EINTR),
    })))
}

/// Executes `setsockopt(2)`, which libsctp also uses to bind and connect.
pub(crate) fn set_option(call: &Call, socket: Socket<'_>) -> Verdict {
    let (level, name) = (call.int(1), call.int(2));
    if !behalf::is_of_server(level, name) && name != libc::SO_SNDBUF {
        return Verdict::Pass;
    }
    let value = match option_value(&call.memory, call.argument(3), call.int(4)) {
        Ok(value) => value,
        Err(error) => return Verdict::Answer(Err(error)),
    };
    match (level, name) {
        (SOL_SCTP, option::CONNECTX) => return connect_to(call, socket, &value, Tell::Result),
        (SOL_SCTP, option::CONNECTX_OLD) => return connect_to(call, socket, &value, Tell::Nothing),
        (SOL_SCTP, option::BINDX_ADD) => {
            if let Err(error) = may_bind(call, &value) {
                return Verdict::Answer(Err(error));
            }
        }
        _ => {}
    }
    Verdict::Answer(behalf::set_option(socket.number(), level, name, &value).map(i64::from))
}

/// Reads the value of an option.
fn option_value(memory: &Memory, at: u64, length: c_int) -> Outcome<Vec<u8>> {
    let length = usize::try_from(length).ok().filter(|length| *length <= OPTION_MAX).ok_or(libc::EINVAL)?;
    memory.read(at, length)
}

/// Executes `getsockopt(2)`, which libsctp also uses to connect and to peel off associations.
pub(crate) fn option(call: &Call, socket: Socket<'_>, programs: &mut Programs) -> Verdict {
    let (level, name) = (call.int(1), call.int(2));
    if !behalf::is_of_server(level, name) {
        return Verdict::Pass;
    }
    let (at, length_at) = (call.argument(3), call.argument(4));
    let read = call.memory.read_u32(length_at).and_then(|length| {
        let room = usize::try_from(length.cast_signed()).map_err(|_| libc::EINVAL)?;
        call.memory.read(at, room.min(OPTION_MAX))
    });
    let mut value = match read {
        Ok(value) => value,
        Err(error) => return Verdict::Answer(Err(error)),
    };
    match (level, name) {
        (SOL_SCTP, option::CONNECTX3) => return connect_list(call, socket, &value),
        (SOL_SCTP, option::PEELOFF | option::PEELOFF_FLAGS) => {
            return peel_off(call, socket, programs, &value).into();
        }
        _ => {}
    }
    let told = behalf::option(socket.number(), level, name, &mut value).and_then(|length| {
        call.memory.write(at, &value[..length])?;
        let length = u32::try_from(length).unwrap_or(0);
        call.memory.write(length_at, &length.to_ne_bytes())
    });
    Verdict::Answer(told.map(|()| 0))
}

/// Executes `sctp_connectx` of libsctp. `struct sctp_getaddrs_old` holds the length and the location of a list of addresses, and receives
/// the association's identifier.
fn connect_list(call: &Call, socket: Socket<'_>, list: &[u8]) -> Verdict {
    if list.len() < 16 {
        return Verdict::Answer(Err(libc::EINVAL));
    }
    let length = c_int::from_ne_bytes([list[4], list[5], list[6], list[7]]);
    match option_value(&call.memory, long(list, 8), length) {
        Ok(addresses) => connect_to(call, socket, &addresses, Tell::Value),
        Err(error) => Verdict::Answer(Err(error)),
    }
}

/// Executes `sctp_peeloff`. The structure receives the new socket's descriptor, and the call also returns this descriptor.
fn peel_off(call: &Call, mut socket: Socket<'_>, programs: &mut Programs, value: &[u8]) -> Outcome<Verdict> {
    let number = programs.free_number(call.notice.thread, 0)?;
    let int = |at: usize| {
        let bytes = value.get(at..at + 4).and_then(|bytes| bytes.first_chunk());
        bytes.map(|bytes| c_int::from_ne_bytes(*bytes)).ok_or(libc::EINVAL)
    };
    let (id, _descriptor) = (int(0)?, int(4)?);
    let flags = if call.int(2) == option::PEELOFF_FLAGS { int(8)? } else { 0 };
    let (fd, facts) = behalf::peel_off(socket.number(), id, flags & libc::SOCK_NONBLOCK)?;
    socket.note(&fd, facts)?;
    call.memory.write(call.argument(3).saturating_add(4), &number.to_ne_bytes())?;
    Ok(Verdict::Give { fd, number, is_cloexec: flags & libc::SOCK_CLOEXEC != 0 })
}

/// Executes `dup(2)`, and `fcntl(2)` with `F_DUPFD`. The copy's number is also at least [`filter::FIRST_DESCRIPTOR`].
pub(crate) fn duplicate(call: &Call, socket: &Socket<'_>, programs: &mut Programs) -> Verdict {
    let is_fcntl = call.notice.call == libc::SYS_fcntl;
    let least = if is_fcntl { call.unsigned(2) } else { 0 };
    let copied = programs.free_number(call.notice.thread, least).and_then(|number| {
        let is_cloexec = is_fcntl && call.int(1) == libc::F_DUPFD_CLOEXEC;
        Ok(Verdict::Give { fd: socket.copy()?.fd, number, is_cloexec })
    });
    copied.into()
}

/// Executes `dup2(2)` and `dup3(2)`. A number below [`filter::FIRST_DESCRIPTOR`] is refused, because the supervisor would not be notified
/// of calls on this number.
pub(crate) fn replace(call: &Call, socket: &Socket<'_>) -> Verdict {
    let number = call.unsigned(1);
    let is_dup3 = call.notice.call == libc::SYS_dup3;
    let flags = if is_dup3 { call.int(2) } else { 0 };
    if number == call.unsigned(0) && !is_dup3 {
        return Verdict::Answer(Ok(number.into()));
    }
    if number == call.unsigned(0) || number < filter::FIRST_DESCRIPTOR || flags & !libc::O_CLOEXEC != 0 {
        return Verdict::Answer(Err(libc::EINVAL));
    }
    socket.copy().map(|copy| Verdict::Give { fd: copy.fd, number, is_cloexec: flags != 0 }).into()
}
