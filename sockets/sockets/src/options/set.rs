//! `setsockopt(2)`.

use std::time::Duration;

use base::Time;
use sctp::{Endpoint, Heartbeats, PathOptions};
use sockproto::abi::{SOL_SCTP, option};
use sockproto::{DataHeader, Kind};

use super::{HEARTBEAT_NOW, HEARTBEAT_OFF, HEARTBEAT_ON, Options, Rto, path_to};
use crate::option_value::{Given, interval};
use crate::socket::{Family, Socket, Style};
use crate::{Errno, SocketKey, Sockets};

impl Sockets {
    /// `setsockopt(2)`.
    ///
    /// # Errors
    /// `ENOPROTOOPT` for an unknown option; `EINVAL` for an invalid value; `EOPNOTSUPP` for `SCTP_AUTOCLOSE` on a one-to-one socket.
    pub fn set_option(
        &mut self,
        now: Time,
        engine: &mut Endpoint,
        key: SocketKey,
        option: (i32, i32),
        value: &[u8],
    ) -> Result<(), Errno> {
        for target in self.targets(engine, key, option, Given(value))? {
            self.get_mut(target)?.set_option(now, engine, option, Given(value))?;
        }
        Ok(())
    }
}

impl Socket {
    fn set_option(
        &mut self,
        now: Time,
        engine: &mut Endpoint,
        (level, name): (i32, i32),
        given: Given<'_>,
    ) -> Result<(), Errno> {
        match (level, name) {
            (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) => return self.set_v6_only(given),
            (SOL_SCTP, option::PEER_ADDR_PARAMS) => return self.set_path_options(now, engine, given),
            (SOL_SCTP, option::PRIMARY_ADDR) => return self.set_primary(now, engine, given),
            (SOL_SCTP, option::AUTOCLOSE) if self.style != Style::OneToMany => return Err(libc::EOPNOTSUPP),
            (SOL_SCTP, option::RTOINFO) => self.options.set_rto(given)?,
            (SOL_SCTP, option::ASSOCINFO) => self.options.set_association_info(given)?,
            (SOL_SCTP, option::DELAYED_SACK) => self.options.set_sack_delay(given)?,
            _ => return self.options.set(level, name, given),
        }
        self.retime(now, engine);
        Ok(())
    }

    fn set_v6_only(&mut self, given: Given<'_>) -> Result<(), Errno> {
        if self.family != Family::V6 {
            return Err(libc::ENOPROTOOPT);
        }
        if self.port.is_some() {
            return Err(libc::EINVAL);
        }
        self.options.v6_only = given.int()? != 0;
        Ok(())
    }

    fn set_primary(&self, now: Time, engine: &mut Endpoint, given: Given<'_>) -> Result<(), Errno> {
        let address = given.exactly(132)?.address(4).ok_or(libc::EINVAL)?;
        let association = self.association().ok_or(libc::EINVAL)?;
        engine.set_primary(now, association, address.ip()).map_err(|_| libc::EINVAL)
    }

    /// Sets `SCTP_PEER_ADDR_PARAMS` for the path to the given address. Without an address, sets the values for all paths that have
    /// no separate values. Without an address, a switch of heartbeats applies to every path.
    fn set_path_options(&mut self, now: Time, engine: &mut Endpoint, given: Given<'_>) -> Result<(), Errno> {
        if ![152, 156].contains(&given.0.len()) {
            return Err(libc::EINVAL);
        }
        let (heartbeat, retransmits) = (given.long(132), given.short(136));
        let (delay, flags) = (given.long(142), given.long(146));
        if flags & HEARTBEAT_ON != 0 && flags & HEARTBEAT_OFF != 0 || delay > 500 {
            return Err(libc::EINVAL);
        }
        let heartbeat = interval(heartbeat)?;
        if let Some(address) = given.address(4) {
            let association = self.association().ok_or(libc::EINVAL)?;
            let info = engine.info(association).ok_or(libc::EINVAL)?;
            let path = path_to(&info, address).ok_or(libc::EINVAL)?;
            let mut options = PathOptions { ..path.options };
            if flags & HEARTBEAT_OFF != 0 {
                options.heartbeats = Heartbeats::Off;
            } else if let Some(ms) = heartbeat {
                options.heartbeats = Heartbeats::Every(Duration::from_millis(ms.into()));
            } else if flags & HEARTBEAT_ON != 0 {
                options.heartbeats = Heartbeats::AsAssociation;
            }
            if retransmits != 0 {
                options.max_retrans = Some(u8::try_from(retransmits).unwrap_or(u8::MAX));
            }
            engine.set_path_options(now, association, address.ip(), options).map_err(|_| libc::EINVAL)?;
            if flags & HEARTBEAT_NOW != 0 {
                engine.request_heartbeat(now, association, address.ip()).map_err(|_| libc::EINVAL)?;
            }
            return Ok(());
        }
        if flags & HEARTBEAT_NOW != 0 {
            let association = self.association().ok_or(libc::EINVAL)?;
            for path in engine.info(association).ok_or(libc::EINVAL)?.paths {
                // An error means that the path no longer exists, so it needs no heartbeat.
                let _ = engine.request_heartbeat(now, association, path.route.remote);
            }
        }
        let options = &mut self.options;
        options.heartbeat_ms = heartbeat.or(options.heartbeat_ms);
        options.heartbeats_off =
            flags & HEARTBEAT_OFF != 0 || options.heartbeats_off && flags & HEARTBEAT_ON == 0;
        options.path_max_retransmits = Some(retransmits).filter(|n| *n != 0).or(options.path_max_retransmits);
        options.sack_delay_ms = Some(delay).filter(|delay| *delay != 0).or(options.sack_delay_ms);
        self.retime(now, engine);
        if flags & (HEARTBEAT_ON | HEARTBEAT_OFF) != 0 {
            self.set_heartbeats(now, engine);
        }
        Ok(())
    }
}

impl Options {
    /// Sets an option that has no effect on the timers of an established association.
    fn set(&mut self, level: i32, name: i32, given: Given<'_>) -> Result<(), Errno> {
        match (level, name) {
            (libc::SOL_SOCKET, libc::SO_LINGER) => {
                let given = given.at_least(8)?;
                self.linger = [given.long(0), given.long(4)].map(u32::cast_signed);
            }
            (SOL_SCTP, option::INITMSG) => {
                let given = given.exactly(8)?;
                for (at, value) in [0, 2, 4, 6].into_iter().map(|at| given.short(at)).enumerate() {
                    if value != 0 {
                        self.init[at] = value;
                    }
                }
            }
            (SOL_SCTP, option::EVENTS) => {
                let value = given.0;
                self.events.get_mut(..value.len()).ok_or(libc::EINVAL)?.copy_from_slice(value);
            }
            (SOL_SCTP, option::EVENT) => {
                let given = given.at_least(8)?;
                let index = usize::from(given.short(4).wrapping_sub(0x8000));
                *self.events.get_mut(index).ok_or(libc::EINVAL)? = u8::from(given.0[6] != 0);
            }
            (SOL_SCTP, option::DEFAULT_SEND_PARAM) => {
                let given = given.exactly(32)?;
                let mut header = DataHeader::new(Kind::Data);
                (header.stream, header.sinfo_flags) = (given.short(0), given.short(4));
                (header.ppid, header.context) = (given.long(8), given.long(12));
                header.tsn_or_lifetime = given.long(16);
                self.default_send = header;
            }
            (SOL_SCTP, option::DEFAULT_SNDINFO) => {
                let given = given.exactly(16)?;
                let header = &mut self.default_send;
                (header.stream, header.sinfo_flags) = (given.short(0), given.short(2));
                (header.ppid, header.context) = (given.long(4), given.long(8));
            }
            (SOL_SCTP, option::CONTEXT) => self.context = given.at_least(8)?.long(4),
            (SOL_SCTP, option::ADAPTATION_LAYER) => self.adaptation = Some(given.exactly(4)?.long(0)),
            (SOL_SCTP, option::REMOTE_UDP_ENCAPS_PORT) => {
                let port = u16::from_be(given.exactly(144)?.short(136));
                self.udp_port = Some(port).filter(|port| *port != 0);
            }
            (SOL_SCTP, option::AUTOCLOSE) => self.autoclose = given.exactly(4)?.long(0),
            _ => return self.keep(level, name, given),
        }
        Ok(())
    }

    /// Sets `SCTP_RTOINFO`. A field of 0 leaves the value unchanged.
    fn set_rto(&mut self, given: Given<'_>) -> Result<(), Errno> {
        let given = given.exactly(16)?;
        let [initial, max, min] = [4, 8, 12].map(|at| interval(given.long(at)));
        let new = Rto {
            initial: initial?.or(self.rto.initial),
            max: max?.or(self.rto.max),
            min: min?.or(self.rto.min),
        };
        if new.min.zip(new.max).is_some_and(|(min, max)| min > max) {
            return Err(libc::EINVAL);
        }
        self.rto = new;
        Ok(())
    }

    /// Sets `SCTP_ASSOCINFO`: the limit on retransmissions, and the life of cookies. The life of cookies is stored, but has no
    /// effect. A field of 0 leaves the value unchanged.
    fn set_association_info(&mut self, given: Given<'_>) -> Result<(), Errno> {
        let given = given.exactly(20)?;
        let (retransmits, cookie_life) = (given.short(4), given.long(16));
        if retransmits != 0 {
            self.max_retransmits = Some(retransmits);
        }
        if cookie_life != 0 {
            self.cookie_life_ms = cookie_life;
        }
        Ok(())
    }

    /// Sets `SCTP_DELAYED_SACK`. The value is a `struct sctp_sack_info`, or the older `struct sctp_assoc_value`, which has no
    /// number of packets.
    fn set_sack_delay(&mut self, given: Given<'_>) -> Result<(), Errno> {
        let delay = given.at_least(8)?.long(4);
        if delay > 500 {
            return Err(libc::EINVAL);
        }
        self.sack_delay_ms = Some(delay).filter(|delay| *delay != 0).or(self.sack_delay_ms);
        Ok(())
    }

    /// Stores the value of an option of [`KEPT`](super::KEPT).
    fn keep(&mut self, level: i32, name: i32, given: Given<'_>) -> Result<(), Errno> {
        self.kept(level, name).ok_or(libc::ENOPROTOOPT)?;
        // In struct sctp_assoc_value, the value follows the identifier.
        let value = match given.association(level, name) {
            Some(_) => given.long(4).cast_signed(),
            None => given.int()?,
        };
        self.kept.insert((level, name), value);
        Ok(())
    }
}
