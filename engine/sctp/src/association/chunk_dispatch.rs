//! Dispatch of received chunks: one table lists the action for each type of chunk.
//!
//! The endpoint handles INIT and COOKIE ECHO, because it has the cookies and the other associations.

use base::{Ecn, Time};
use bytes::Bytes;
use wire::{Abort, Cause, Chunk, ChunkError, ChunkType, ErrorChunk, RawChunk, UnrecognizedAction};

use super::authentication::{Screen, Screened};
use super::{Association, CameBy, Context, Control, Opening, State};
use crate::event::{AbortCause, CloseReason};
use crate::extension::Extension;
use crate::path::PathIndex;
use crate::trace::TraceEvent;

/// The endpoint's next step after a packet.
#[derive(Debug, Default)]
pub(crate) enum Verdict {
    /// No further step.
    #[default]
    Done,
    /// Send INIT again: the cookie was stale.
    BeginAgain(Box<Opening>),
    /// The packet does not belong to this association: treat it as out of the blue.
    OutOfTheBlue,
}

/// The decision on the packet's remaining chunks.
enum Next {
    Go,
    Stop(Verdict),
}

impl Association {
    /// Records a received packet in the counters and timers of the association and of `path`.
    pub(crate) fn on_packet(&mut self, path: PathIndex, length: usize, ecn: Ecn, now: Time) {
        self.marks.begin_packet(ecn);
        self.inbound.ack.on_packet();
        self.transfer.out.trace(|| TraceEvent::Received {
            route: self.transfer.paths.get(path).route,
            bytes: length,
            ecn,
        });
        // If the packet belongs to no known path, `path` is only a substitute, so the packet does not count for `path`.
        if self.came_by == CameBy::Elsewhere {
            return;
        }
        self.transfer.paths.get_mut(path).on_packet(
            now,
            self.transfer.state.probes_paths(),
            &self.transfer.config.timing,
        );
        let counters = &mut self.transfer.paths.get_mut(path).counters;
        counters.packets_received += 1;
        counters.bytes_received += length as u64;
        if self.transfer.paths.get(path).is_confirmed() {
            self.transfer.credit.earn(length);
        }
    }

    /// Handles the chunks of a packet whose tag, ports and addresses match. `screen` is the authentication state after
    /// the chunks that were handled before.
    pub(crate) fn on_chunks<'a>(
        &mut self,
        path: PathIndex,
        mut chunks: impl Iterator<Item = Result<RawChunk<'a>, ChunkError>>,
        mut screen: Screen,
        ctx: &mut Context<'_>,
    ) -> Verdict {
        let mut is_first = true;
        self.transfer.integrity.begin_packet(screen.is_authenticated, screen.is_sealed);
        if screen.is_sealed
            && let Some(asconf) = &mut self.asconf
        {
            asconf.is_keyed = true;
        }
        //= rfc9260#6.10-6
        while let Some(raw) = chunks.next() {
            if matches!(self.transfer.state, State::Closed) {
                break;
            }
            if let Ok(raw) = &raw {
                match self.screen(path, raw, &mut screen, ctx) {
                    Screened::Pass => {}
                    Screened::Skip => continue,
                    Screened::Stop => break,
                }
            }
            let is_end = raw.as_ref().is_ok_and(|raw| raw.chunk_type == ChunkType::SHUTDOWN_COMPLETE);
            // SHUTDOWN COMPLETE must not be bundled.
            //= rfc9260#3-1
            if is_end && !(is_first && chunks.next().is_none()) {
                break;
            }
            is_first = false;
            let chunk = match raw.and_then(|raw| raw.parse().map(|chunk| (raw, chunk))) {
                Ok((raw, chunk)) => self.on_chunk(path, &raw, &chunk, ctx),
                Err(error) => {
                    self.on_malformed(&error, ctx);
                    break;
                }
            };
            match chunk {
                Next::Go => {}
                Next::Stop(verdict) => return verdict,
            }
        }
        self.after_inbound_reset();
        self.after_packet(ctx.now);
        Verdict::Done
    }

    /// Treats a malformed chunk as a protocol violation (RFC 9260 section 3.3.10.13). Ignores a malformed ABORT.
    //= rfc9260#6.10-7
    fn on_malformed(&mut self, error: &ChunkError, ctx: &mut Context<'_>) {
        //= rfc9260#3.3.7-3
        let is_abort = matches!(error, ChunkError::Length { chunk_type: ChunkType::ABORT, .. });
        if !is_abort {
            self.violation(error.to_string(), ctx);
        }
    }

    /// Aborts the association because the peer violated the protocol, unless a third party may have sent the chunk.
    pub(super) fn violation(&mut self, reason: impl Into<Bytes>, ctx: &mut Context<'_>) {
        let cause = AbortCause { code: Cause::ProtocolViolation(&[]).code(), reason: reason.into() };
        self.end_for_fault(cause, ctx);
    }

    /// Aborts the association because of the current chunk, unless a third party may have sent that chunk.
    pub(super) fn end_for_fault(&mut self, cause: AbortCause, ctx: &mut Context<'_>) {
        if self.transfer.integrity.may_be_forged() {
            self.transfer.out.note(TraceEvent::FaultIgnored);
        } else {
            self.abort(cause, ctx);
        }
    }

    fn on_chunk(
        &mut self,
        path: PathIndex,
        raw: &RawChunk<'_>,
        chunk: &Chunk<'_>,
        ctx: &mut Context<'_>,
    ) -> Next {
        match chunk {
            Chunk::Data(data) if !self.transfer.negotiated.has(Extension::Interleaving) => {
                self.on_data(path, &data.into(), ctx);
            }
            //= rfc8260#section-2.2.3
            //# If I-DATA support has been negotiated for an association, the reception of a DATA chunk is a violation of the above
            //# rules and therefore the receiver of the DATA chunk MUST abort the association by sending an ABORT chunk.
            //= rfc8260#2.2.3-3
            Chunk::Data(_) => self.violation("DATA where I-DATA was negotiated", ctx),
            Chunk::IData(data) if self.transfer.negotiated.has(Extension::Interleaving) => {
                self.on_data(path, &data.into(), ctx);
            }
            //= rfc8260#section-2.2.3
            //# The same applies if I-DATA support has not been negotiated for an association and an I-DATA chunk is received.
            Chunk::IData(_) => self.violation("I-DATA that was not negotiated", ctx),
            Chunk::ForwardTsn(chunk) if self.transfer.negotiated.has(Extension::PartialReliability) => {
                //= rfc8260#section-2.3.1
                //# If I-FORWARD-TSN support has been negotiated for an association, the reception of a FORWARD-TSN chunk is a
                //# violation of the above rules and therefore the receiver of the FORWARD-TSN chunk MUST abort the association
                if self.transfer.negotiated.has(Extension::Interleaving) {
                    //= rfc8260#2.3.1-6
                    self.violation("FORWARD TSN where I-FORWARD-TSN was negotiated", ctx);
                } else {
                    self.on_forward_tsn(chunk, ctx);
                }
            }
            Chunk::IForwardTsn(chunk) if self.forwards_interleaved() => self.on_i_forward_tsn(chunk, ctx),
            Chunk::Sack(sack) => self.on_sack(sack, ctx),
            Chunk::Heartbeat(heartbeat) => self.on_heartbeat(path, heartbeat, raw.value, ctx),
            Chunk::HeartbeatAck(heartbeat) => self.on_heartbeat_ack(heartbeat, ctx),
            Chunk::Abort(_) | Chunk::ShutdownComplete(_) if !self.may_end_at_once() => {}
            Chunk::Abort(abort) => self.on_abort(abort),
            Chunk::Shutdown(shutdown) => self.on_shutdown(path, shutdown.cumulative_tsn, ctx),
            Chunk::ShutdownAck => return self.on_shutdown_ack(path, ctx),
            Chunk::ShutdownComplete(_) => self.on_shutdown_complete(),
            Chunk::Error(error) => return self.on_error_chunk(error, ctx),
            Chunk::CookieAck => self.on_cookie_ack(ctx),
            Chunk::Asconf(asconf) if self.asconf.is_some() => self.on_asconf(asconf, ctx),
            Chunk::AsconfAck(ack) if self.asconf.is_some() => self.on_asconf_ack(ack, ctx),
            Chunk::ReConfig(chunk) if self.reconfig.is_some() => self.on_reconfig(path, chunk, ctx),
            // RFC 9260 section 3: INIT and INIT ACK must not be bundled. A bundled INIT or INIT ACK is dropped with the
            // rest of the packet. INIT ACK is dropped in every state except COOKIE-WAIT (section 5.2.3). A COOKIE ECHO
            // that is not the first chunk is dropped too.
            Chunk::Init(_) | Chunk::InitAck(_) | Chunk::CookieEcho(_) => return Next::Stop(Verdict::Done),
            // RFC 4820 section 3: padding is ignored, and the chunks after it are processed.
            //= rfc4820#3-4
            Chunk::Pad(_) => {}
            Chunk::Ecne(ecne) if self.transfer.negotiated.has(Extension::Ecn) => {
                self.transfer.on_ecne(ecne.lowest_tsn, ctx.now)
            }
            Chunk::Cwr(cwr) if self.transfer.negotiated.has(Extension::Ecn) => self.marks.on_cwr(cwr.lowest_tsn),
            Chunk::Unknown(_) if self.transfer.advertising.is_advertisement(raw) => self.transfer.on_advertisement(raw),
            // The peer must not send chunks of extensions that were not negotiated. Such chunks are handled like chunks
            // of unknown types.
            Chunk::Asconf(_)
            | Chunk::AsconfAck(_)
            | Chunk::Ecne(_)
            | Chunk::Cwr(_)
            | Chunk::Auth(_)
            | Chunk::ReConfig(_)
            //= rfc3758#3.3.1-1
            | Chunk::ForwardTsn(_)
            | Chunk::IForwardTsn(_)
            | Chunk::Unknown(_) => return self.on_unrecognized(path, raw, ctx),
        }
        Next::Go
    }

    /// Reports whether I-FORWARD-TSN is accepted. RFC 8260 section 2.3.1 requires both ends to announce their support,
    /// but this engine needs only its own support. Linux sends I-FORWARD-TSN without announcing its support. If this
    /// end rejected the chunk, messages that Linux has abandoned would wait here forever.
    //= rfc8260#2-2
    fn forwards_interleaved(&self) -> bool {
        self.transfer.negotiated.has(Extension::Interleaving)
            && self.transfer.config.extensions.has(Extension::PartialReliability)
    }

    /// Handles a chunk of an unknown type. The two highest bits of the type determine the action (RFC 9260 section
    /// 3.2).
    //= rfc5061#4.1.1-7
    fn on_unrecognized(&mut self, path: PathIndex, raw: &RawChunk<'_>, ctx: &mut Context<'_>) -> Next {
        let action = UnrecognizedAction::for_chunk(raw.chunk_type);
        if action.reports() && raw.bytes.len() <= ctx.limits.reported_bytes {
            self.report(path, &Cause::UnrecognizedChunkType(raw.bytes), ctx);
        }
        if action.stops() { Next::Stop(Verdict::Done) } else { Next::Go }
    }

    /// Queues an ERROR chunk, unless [`MAX_WAITING_ERRORS`] are queued already.
    pub(super) fn report(&mut self, path: PathIndex, cause: &Cause<'_>, ctx: &Context<'_>) {
        let waiting = self.transfer.out.count(|c| matches!(c, Control::Error(_)));
        let mut buf = vec![0; ctx.limits.reported_bytes + 64];
        let mut out = wire::Writer::new(&mut buf);
        if waiting < MAX_WAITING_ERRORS && cause.write(&mut out).is_ok() {
            let bytes = Bytes::copy_from_slice(out.written());
            self.transfer.out.queue(self.proved(path), Control::Error(bytes));
        }
    }

    fn on_cookie_ack(&mut self, ctx: &mut Context<'_>) {
        //= rfc9260#5.2.5-1
        if matches!(self.transfer.state, State::CookieEchoed { .. }) {
            self.transfer.liveness.on_answer();
            self.establish(ctx);
        }
    }

    /// Closes the association on an ABORT with the right tag, in every state (RFC 9260 section 3.3.7).
    //= rfc9260#3.3.7-4 9.1-6 9.1-7
    fn on_abort(&mut self, abort: &Abort<'_>) {
        // In SHUTDOWN-ACK-SENT, all data has been delivered. A reflected tag shows that the peer has removed the
        // association. The ABORT answers a late packet of ours, and arrived before SHUTDOWN COMPLETE.
        if abort.tag_reflected && matches!(self.transfer.state, State::ShutdownAckSent { .. }) {
            return self.transfer.close(CloseReason::Graceful);
        }
        let cause = abort.causes.iter().find_map(Result::ok);
        self.transfer
            .close(CloseReason::PeerAborted(cause.map(|c| AbortCause::from_wire(&c)).unwrap_or_default()));
    }

    /// Handles the causes of an ERROR chunk (RFC 9260 section 3.3.10). Only a stale cookie and an unrecognized ASCONF
    /// need an action.
    fn on_error_chunk(&mut self, error: &ErrorChunk<'_>, ctx: &mut Context<'_>) -> Next {
        for cause in error.causes.iter().map_while(Result::ok) {
            //= rfc9260#5.2.6-1 5.2.6-2
            if let (Cause::StaleCookie { staleness }, State::CookieEchoed { .. }) =
                (cause, &self.transfer.state)
            {
                return match self.after_stale_cookie(staleness, ctx.now) {
                    Some(opening) => Next::Stop(Verdict::BeginAgain(Box::new(opening))),
                    None => {
                        self.transfer.close(CloseReason::NoAnswer);
                        Next::Stop(Verdict::Done)
                    }
                };
            }
            if let Cause::UnrecognizedChunkType([kind, ..]) = cause
                && *kind == ChunkType::ASCONF.0
            {
                self.on_asconf_not_recognized(ctx);
            }
        }
        Next::Go
    }

    fn on_shutdown_ack(&mut self, path: PathIndex, ctx: &mut Context<'_>) -> Next {
        match self.transfer.state {
            State::ShutdownSent { .. } | State::ShutdownAckSent { .. } => {
                self.complete_shutdown(path, ctx);
                Next::Go
            }
            // RFC 9260 section 8.5.1 E: SHUTDOWN ACK before the association is established is out of the
            // blue.
            State::CookieWaitOver | State::CookieEchoed { .. } => Next::Stop(Verdict::OutOfTheBlue),
            State::Accepting
            | State::Established
            | State::ShutdownPending
            | State::ShutdownReceived { .. }
            | State::Closed => Next::Go,
        }
    }
}

/// Maximum number of ERROR chunks queued at once.
const MAX_WAITING_ERRORS: usize = 8;
