//! Commands about single paths, and about undelivered messages (RFC 6458 sections 6.1.9, 8.1.9 and 8.1.12).
//!
//! The commands change settings and answer queries, but send nothing themselves. Start at
//! [`Transfer::set_path_options`].

use std::net::IpAddr;
use std::num::NonZeroU16;

use super::Transfer;
use crate::association::{Context, State};
use crate::config::{AddressUse, PathOptions};
use crate::error::PathOptionError;
use crate::event::{Event, Message, PathReason};
use crate::path::PathIndex;

impl Transfer {
    /// Returns the paths to `remote`, or an error if there are none or the association is closed.
    fn paths_to(&self, remote: IpAddr) -> Result<Vec<PathIndex>, PathOptionError> {
        if matches!(self.state, State::Closed) {
            return Err(PathOptionError::Closed);
        }
        let to_remote = self.paths.iter().filter(|(_, p)| p.route.remote == remote);
        let paths: Vec<PathIndex> = to_remote.map(|(i, _)| i).collect();
        if paths.is_empty() { Err(PathOptionError::Unknown(remote)) } else { Ok(paths) }
    }

    /// Sets options of all paths to `remote`.
    pub(crate) fn set_path_options(
        &mut self,
        remote: IpAddr,
        options: PathOptions,
        ctx: &mut Context<'_>,
    ) -> Result<(), PathOptionError> {
        let timing = &self.config.timing;
        let least = timing.least_switchover(options.max_retrans.unwrap_or(timing.path_max_retrans));
        //= rfc7829#5-3
        if options.switchover_max_retrans.is_some_and(|psmr| psmr < least) {
            return Err(PathOptionError::SwitchoverTooSoon { least });
        }
        for index in self.paths_to(remote)? {
            self.paths.get_mut(index).set_options(options, ctx.now, &self.config.timing, ctx.random);
        }
        Ok(())
    }

    /// Changes the weight of the paths between two addresses, which determines their share of new data.
    pub(crate) fn set_path_weight(
        &mut self,
        local: IpAddr,
        remote: IpAddr,
        weight: NonZeroU16,
    ) -> Result<(), PathOptionError> {
        let mut paths = self.paths_to(remote)?;
        paths.retain(|&index| self.paths.get(index).route.local == local);
        if paths.is_empty() {
            return Err(PathOptionError::Unknown(local));
        }
        paths.into_iter().for_each(|index| self.paths.get_mut(index).set_weight(weight));
        Ok(())
    }

    /// Requests an immediate HEARTBEAT on all paths to `remote`.
    pub(crate) fn request_heartbeat(
        &mut self,
        remote: IpAddr,
        ctx: &mut Context<'_>,
    ) -> Result<(), PathOptionError> {
        for index in self.paths_to(remote)? {
            self.paths.get_mut(index).request_heartbeat(ctx.now);
        }
        Ok(())
    }

    /// Makes `remote` the preferred address for new data.
    pub(crate) fn prefer(&mut self, remote: IpAddr) -> Result<(), PathOptionError> {
        self.paths_to(remote)?;
        self.paths.make_primary(remote);
        self.choose_path(PathReason::PrimaryChosen);
        Ok(())
    }

    /// Sets the uses of addresses of one end: ours if `is_ours` is true, otherwise the peer's. Moves new data if
    /// another path is preferred now. Returns whether any use is new.
    ///
    /// # Errors
    /// Returns the last address in `uses` that no path has. The uses of the other addresses are set nevertheless.
    pub(crate) fn set_uses(&mut self, is_ours: bool, uses: &[(IpAddr, AddressUse)]) -> Result<bool, IpAddr> {
        let (mut is_new, mut unknown) = (false, None);
        for &(address, usage) in uses {
            match self.paths.set_use(address, is_ours, usage) {
                Some(changed) => is_new |= changed,
                None => unknown = Some(address),
            }
        }
        if is_new && self.paths.have_ranks() {
            self.choose_path(PathReason::Preferred);
        }
        unknown.map_or(Ok(is_new), Err)
    }

    /// Requests an event when no data is left to send or acknowledge.
    pub(crate) fn notify_when_dry(&mut self) {
        self.tx.buffer.want_dry();
        self.tell_if_dry();
    }

    pub(crate) fn tell_if_dry(&mut self) {
        if self.tx.take_dry() {
            self.out.emit(Event::Dry);
        }
    }

    /// Returns the next message of which no part was ever sent. Returns `None` until the association has ended.
    pub(crate) fn take_unsent(&mut self) -> Option<Message> {
        if !matches!(self.state, State::Closed) {
            return None;
        }
        // If a message was partly sent, the queue only has its rest, which is skipped.
        let whole =
            std::iter::from_fn(|| self.tx.queue.next_fragment(usize::MAX)).find(|t| t.fragment.begin)?;
        let fragment = whole.fragment;
        Some(Message {
            stream: fragment.stream,
            ppid: fragment.ppid,
            unordered: fragment.unordered,
            begin: true,
            end: true,
            aborted: false,
            pieces: smallvec::smallvec![fragment.payload],
        })
    }
}
