//! `getsockopt(2)`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use sctp::{AssociationInfo, Endpoint, Heartbeats, PathInfo, PathState, StateName};
use sockproto::abi::{SOL_SCTP, option};

use super::{EVENTS, HEARTBEAT_OFF, HEARTBEAT_ON, Options, path_to};
use crate::notification::{Fields, STORAGE};
use crate::option_value::Given;
use crate::socket::{Family, Socket, State};
use crate::{Errno, SocketKey, Sockets};

/// Length of `struct sctp_status`, in bytes.
const STATUS: usize = 176;

impl Sockets {
    /// `getsockopt(2)`. `given` is the program's buffer. Its length limits the value, and its content selects an association or an address
    /// for some options.
    ///
    /// # Errors
    /// - `ENOPROTOOPT` for an unknown option.
    /// - `EINVAL` for a buffer that is too short. `EINVAL` if the option needs an association and the socket has no association.
    /// - `ENOMEM` for a list of addresses that does not fit into the buffer.
    /// - `EOPNOTSUPP` for an option of one-to-many sockets on a one-to-one socket.
    pub fn option(
        &mut self,
        engine: &Endpoint,
        key: SocketKey,
        (level, name): (i32, i32),
        given: &[u8],
    ) -> Result<Vec<u8>, Errno> {
        let is_one_to_many = self.is_one_to_many(key);
        let key = self.source(engine, key, (level, name), Given(given))?;
        if level != SOL_SCTP {
            return self.get_mut(key)?.option_of_other_level(level, name, is_one_to_many);
        }
        if name == option::GET_LOCAL_ADDRS {
            return self.local_addresses(engine, key, given.len());
        }
        let value = self.get(key)?.sctp_option(engine, name, Given(given), is_one_to_many)?;
        if given.len() < value.len() { Err(libc::EINVAL) } else { Ok(value) }
    }

    fn local_addresses(&self, engine: &Endpoint, key: SocketKey, room: usize) -> Result<Vec<u8>, Errno> {
        let socket = self.get(key)?;
        let info = socket.association().and_then(|association| engine.info(association));
        let mut all: Vec<IpAddr> = match &info {
            Some(info) => info.paths.iter().map(|path| path.route.local).collect(),
            None if socket.bound.is_empty() => {
                let loopback = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
                loopback.iter().chain(&self.addresses).copied().filter(|own| socket.takes(*own)).collect()
            }
            None => socket.bound.clone(),
        };
        all.dedup();
        all.sort_unstable();
        all.dedup();
        socket.packed(&all, socket.port.unwrap_or(0), room)
    }
}

/// Returns the bytes of an `int`.
fn int(value: i32) -> Vec<u8> {
    Fields::new().id(value).done()
}

impl Socket {
    fn option_of_other_level(
        &mut self,
        level: i32,
        name: i32,
        is_one_to_many: bool,
    ) -> Result<Vec<u8>, Errno> {
        let value = match (level, name) {
            (libc::SOL_SOCKET, libc::SO_ERROR) => std::mem::take(&mut self.error),
            (libc::SOL_SOCKET, libc::SO_DOMAIN) if self.family == Family::V4 => libc::AF_INET,
            (libc::SOL_SOCKET, libc::SO_DOMAIN) => libc::AF_INET6,
            (libc::SOL_SOCKET, libc::SO_TYPE) if is_one_to_many => libc::SOCK_SEQPACKET,
            (libc::SOL_SOCKET, libc::SO_TYPE) => libc::SOCK_STREAM,
            (libc::SOL_SOCKET, libc::SO_PROTOCOL) => libc::IPPROTO_SCTP,
            (libc::SOL_SOCKET, libc::SO_ACCEPTCONN) => {
                i32::from(matches!(self.state, State::Listening { .. }))
            }
            (libc::SOL_SOCKET, libc::SO_LINGER) => {
                let [on, seconds] = self.options.linger;
                return Ok(Fields::new().id(on).id(seconds).done());
            }
            (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) if self.family == Family::V6 => {
                i32::from(self.options.v6_only)
            }
            _ => self.options.kept(level, name).ok_or(libc::ENOPROTOOPT)?,
        };
        Ok(int(value))
    }

    fn sctp_option(
        &self,
        engine: &Endpoint,
        name: i32,
        given: Given<'_>,
        is_one_to_many: bool,
    ) -> Result<Vec<u8>, Errno> {
        match name {
            option::PEER_ADDR_PARAMS => Ok(self.path_options(engine, given)),
            option::ASSOCINFO => Ok(self.association_info(engine)),
            option::STATUS => self.status(engine).ok_or(libc::EINVAL),
            option::PRIMARY_ADDR => self.primary(engine),
            option::GET_PEER_ADDR_INFO => self.peer_address_info(engine, given),
            option::GET_PEER_ADDRS => {
                let info = self.info(engine).ok_or(libc::EINVAL)?;
                self.packed(&peer_addresses(&info), info.remote_port, given.0.len())
            }
            option::AUTOCLOSE | option::ASSOC_NUMBER | option::ASSOC_ID_LIST if !is_one_to_many => {
                Err(libc::EOPNOTSUPP)
            }
            option::ASSOC_NUMBER => Ok(Fields::new().long(saturating(self.members.ids().count())).done()),
            option::ASSOC_ID_LIST => {
                let fields = Fields::new().long(saturating(self.members.ids().count()));
                Ok(self.members.ids().fold(fields, Fields::id).done())
            }
            _ => self.options.value(self.id, name, given),
        }
    }

    /// Returns the state of the association, if the socket has one.
    fn info(&self, engine: &Endpoint) -> Option<AssociationInfo> {
        engine.info(self.association()?)
    }

    /// Returns the value of `SCTP_ASSOCINFO`.
    fn association_info(&self, engine: &Endpoint) -> Vec<u8> {
        let info = self.info(engine);
        let window = info.as_ref().map_or(0, |info| saturating(info.peer_rwnd));
        let peers = info.as_ref().map_or(0, |info| peer_addresses(info).len());
        let retransmits = u16::from(self.options.timing(false).association_max_retrans);
        let fields = Fields::new().id(self.id).short(retransmits);
        let fields = fields.short(u16::try_from(peers).unwrap_or(u16::MAX)).long(window);
        fields.long(0).long(self.options.cookie_life_ms).done()
    }

    /// Returns the value of `SCTP_PRIMARY_ADDR`.
    fn primary(&self, engine: &Endpoint) -> Result<Vec<u8>, Errno> {
        let info = self.info(engine).ok_or(libc::EINVAL)?;
        let primary = info.paths.iter().find(|path| path.primary).or(info.paths.first());
        let address = SocketAddr::new(primary.ok_or(libc::EINVAL)?.route.remote, info.remote_port);
        Ok(Fields::new().id(self.id).storage(&self.name_of(address)).done())
    }

    /// Returns the value of `SCTP_GET_PEER_ADDR_INFO`.
    fn peer_address_info(&self, engine: &Endpoint, given: Given<'_>) -> Result<Vec<u8>, Errno> {
        let address = given.at_least(152)?.address(4).ok_or(libc::EINVAL)?;
        let info = self.info(engine).ok_or(libc::EINVAL)?;
        let path = path_to(&info, address).ok_or(libc::EINVAL)?;
        Ok(Fields::new().id(self.id).path(self, path).done())
    }

    /// Returns the value of `SCTP_PEER_ADDR_PARAMS` for the path to the given address. Without an address, returns the socket's
    /// defaults.
    fn path_options(&self, engine: &Endpoint, given: Given<'_>) -> Vec<u8> {
        let timing = self.options.timing(false);
        let own = given.address(4).and_then(|address| {
            let info = engine.info(self.association()?)?;
            path_to(&info, address).cloned()
        });
        let heartbeats = own.as_ref().map(|path| path.options.heartbeats).unwrap_or_default();
        let (interval, is_on) = match heartbeats {
            Heartbeats::Every(interval) => (interval, true),
            Heartbeats::Off => (timing.heartbeat_interval, false),
            _ => (timing.heartbeat_interval, own.is_some() || !self.options.heartbeats_off),
        };
        let retransmits =
            own.as_ref().and_then(|path| path.options.max_retrans).unwrap_or(timing.path_max_retrans);
        let mtu = own.as_ref().map_or(0, |path| u32::from(path.mtu));
        // SPP_PMTUD_ENABLE (8) and SPP_SACKDELAY_ENABLE (32) are always set.
        let flags = 8 | 32 | if is_on { HEARTBEAT_ON } else { HEARTBEAT_OFF };
        let address = given.0.get(4..4 + STORAGE).unwrap_or(&[0; STORAGE]);
        let fields = address.iter().copied().fold(Fields::new().id(self.id), Fields::byte);
        let fields = fields.long(milliseconds(interval)).short(retransmits.into()).long(mtu);
        let fields = fields.long(milliseconds(timing.sack_delay)).long(flags);
        let value = match given.0.len() {
            152 => fields.short(0),
            _ => fields.long(0).short(0),
        };
        value.done()
    }

    /// Returns the value of `SCTP_STATUS`, if the socket has an association.
    fn status(&self, engine: &Endpoint) -> Option<Vec<u8>> {
        let association = self.association()?;
        let Some(info) = engine.info(association) else {
            // The engine has no information while the association is being set up. The state is then SCTP_COOKIE_WAIT (2), and all
            // other fields are 0.
            let mut value = Fields::new().id(self.id).long(2).done();
            value.resize(STATUS, 0);
            return Some(value);
        };
        let state = match info.state {
            StateName::Closed => 1,
            StateName::CookieWait | StateName::Accepting => 2,
            StateName::CookieEchoed => 3,
            StateName::Established => 4,
            StateName::ShutdownPending => 5,
            StateName::ShutdownSent => 6,
            StateName::ShutdownReceived => 7,
            StateName::ShutdownAckSent => 8,
        };
        let primary = info.paths.iter().find(|path| path.primary).or(info.paths.first())?;
        // Linux counts chunks, but the engine counts bytes. The number of chunks is computed as if each chunk were a fragment of
        // full size.
        let fragment = engine.fragment_size(association).max(1);
        let chunks = |bytes: usize| u16::try_from(bytes.div_ceil(fragment)).unwrap_or(u16::MAX);
        let in_flight = info.send_buffered.saturating_sub(info.send_waiting);
        let fields = Fields::new().id(self.id).long(state).long(saturating(info.peer_rwnd));
        let fields = fields.short(chunks(in_flight)).short(chunks(info.receive_buffered));
        let fields =
            fields.short(info.inbound_streams).short(info.outbound_streams).long(saturating(fragment));
        Some(fields.id(self.id).path(self, primary).done())
    }

    /// Returns a `struct sctp_getaddrs`: the association's identifier, the number of addresses, and the packed addresses.
    ///
    /// # Errors
    /// `ENOMEM` if the value is longer than `room` bytes.
    fn packed(&self, addresses: &[IpAddr], port: u16, room: usize) -> Result<Vec<u8>, Errno> {
        let count = u32::try_from(addresses.len()).unwrap_or(u32::MAX);
        let mut value = Fields::new().id(self.id).long(count).done();
        for address in addresses {
            let address = SocketAddr::new(*address, port);
            // Each address keeps its own family. Even on an IPv6 socket, this option returns an IPv4 address unmapped.
            value.extend_from_slice(sockproto::SockAddr::of(address, false).as_bytes());
        }
        if value.len() > room { Err(libc::ENOMEM) } else { Ok(value) }
    }
}

impl Options {
    /// Returns the value of an option that depends only on the socket's options.
    fn value(&self, id: i32, name: i32, given: Given<'_>) -> Result<Vec<u8>, Errno> {
        let fields = Fields::new();
        Ok(match name {
            option::INITMSG => self.init.into_iter().fold(fields, Fields::short).done(),
            option::RTOINFO => {
                let timing = self.timing(false);
                let of = |set: Option<u32>, by_default: Duration| set.unwrap_or(milliseconds(by_default));
                let fields = fields.id(id).long(of(self.rto.initial, timing.rto_initial));
                let fields = fields.long(of(self.rto.max, timing.rto_max));
                fields.long(of(self.rto.min, timing.rto_min)).done()
            }
            option::EVENTS => self.events[..given.0.len().min(EVENTS)].to_vec(),
            option::EVENT => {
                let kind = given.at_least(8)?.short(4);
                fields.id(id).short(kind).byte(u8::from(self.wants(kind))).byte(0).done()
            }
            option::DEFAULT_SEND_PARAM => {
                let header = self.default_send;
                let fields = fields.short(header.stream).short(0).short(header.sinfo_flags).short(0);
                let fields = fields.long(header.ppid).long(header.context).long(header.tsn_or_lifetime);
                fields.long(0).long(0).id(id).done()
            }
            option::DEFAULT_SNDINFO => {
                let header = self.default_send;
                let fields = fields.short(header.stream).short(header.sinfo_flags);
                fields.long(header.ppid).long(header.context).id(id).done()
            }
            option::CONTEXT => fields.id(id).long(self.context).done(),
            option::ADAPTATION_LAYER => fields.long(self.adaptation.unwrap_or(0)).done(),
            option::DELAYED_SACK => {
                let delay = self.sack_delay_ms.unwrap_or(milliseconds(self.timing(false).sack_delay));
                match given.0.len() {
                    0..12 => fields.id(id).long(delay).done(),
                    _ => fields.id(id).long(delay).long(2).done(),
                }
            }
            option::MAXSEG | option::MAX_BURST if given.0.len() >= 8 => {
                fields.id(id).id(self.kept(SOL_SCTP, name).unwrap_or(0)).done()
            }
            option::REMOTE_UDP_ENCAPS_PORT => {
                let mut value = vec![0; 144];
                value[..4].copy_from_slice(&id.to_ne_bytes());
                value[136..138].copy_from_slice(&self.udp_port.unwrap_or(0).to_be_bytes());
                value
            }
            option::AUTOCLOSE => fields.long(self.autoclose).done(),
            _ => int(self.kept(SOL_SCTP, name).ok_or(libc::ENOPROTOOPT)?),
        })
    }
}

/// Returns the peer's addresses without duplicates, in the order of the paths.
fn peer_addresses(info: &AssociationInfo) -> Vec<IpAddr> {
    let mut all: Vec<IpAddr> = Vec::new();
    for remote in info.paths.iter().map(|path| path.route.remote) {
        if !all.contains(&remote) {
            all.push(remote);
        }
    }
    all
}

fn milliseconds(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis()).unwrap_or(u32::MAX)
}

fn saturating(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

impl Fields {
    /// Appends the fields of `struct sctp_paddrinfo` after the identifier.
    fn path(self, socket: &Socket, path: &PathInfo) -> Fields {
        // The numbers are SCTP_INACTIVE, SCTP_PF, SCTP_ACTIVE and SCTP_UNCONFIRMED.
        let state = match path.state {
            PathState::Inactive => 0,
            PathState::PotentiallyFailed => 1,
            PathState::Active => 2,
            PathState::Unconfirmed => 3,
        };
        let peer = SocketAddr::new(path.route.remote, socket.peer.map_or(0, |peer| peer.port()));
        let srtt = path.srtt.map_or(0, milliseconds);
        let fields = self.storage(&socket.name_of(peer)).long(state).long(saturating(path.cwnd));
        fields.long(srtt).long(milliseconds(path.rto)).long(path.mtu.into())
    }
}
