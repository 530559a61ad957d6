//! Authentication of a packet's chunks (RFC 4895 section 6.3), and access to the keys for the driver's key commands.

use wire::{Cause, ChunkType, RawChunk};

use super::{Association, Context};
use crate::error::AuthKeyError;
use crate::extension::auth::{Auth, HandshakeHash, Unverified};
use crate::path::PathIndex;
use crate::trace::TraceEvent;

/// The authentication state of a packet after the chunks handled so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Screen {
    /// Set once a valid AUTH chunk covers the chunks that follow.
    pub(crate) is_authenticated: bool,
    /// Set if the chunks were sealed in a DTLS chunk.
    pub(crate) is_sealed: bool,
}

/// The decision on a chunk.
pub(super) enum Screened {
    /// Handle the chunk.
    Pass,
    /// Skip this chunk.
    Skip,
    /// Drop the rest of the packet.
    Stop,
}

impl Association {
    /// Handles an unsigned ABORT, which the peer or a third party may have sent.
    fn hear_abort(&mut self, ctx: &mut Context<'_>) {
        if self.may_end_at_once() {
            let paths = &self.transfer.paths;
            let came_by = self.came_by.path().filter(|index| paths.get(*index).is_confirmed());
            self.transfer.hear_forgotten(came_by.unwrap_or(paths.current()), ctx);
        }
    }

    /// Verifies AUTH chunks. Rejects chunks that need a valid AUTH chunk before them but have none. With protection by
    /// DTLS chunks, the decision depends only on the type of the chunk, and on whether the packet was sealed.
    pub(super) fn screen(
        &mut self,
        path: PathIndex,
        raw: &RawChunk<'_>,
        screen: &mut Screen,
        ctx: &mut Context<'_>,
    ) -> Screened {
        if let Some(protection) = self.transfer.integrity.protection() {
            if protection.takes(raw.chunk_type, screen.is_sealed) {
                return Screened::Pass;
            }
            self.transfer.out.note(TraceEvent::Unauthenticated { chunk_type: raw.chunk_type.0 });
            return Screened::Skip;
        }
        let Some(auth) = self.transfer.integrity.auth() else { return Screened::Pass };
        if raw.chunk_type != ChunkType::AUTH {
            // RFC 4895 section 6.3: the receiver "MUST silently discard these chunks if they are not placed after an AUTH chunk
            // in the packet."
            //= rfc4895#6.3-1
            let is_abort = raw.chunk_type == ChunkType::ABORT;
            let is_needed = auth.requires(raw.chunk_type) || (is_abort && auth.has_shared_keys_only());
            let held_back = is_needed && !screen.is_authenticated;
            if held_back {
                self.transfer.out.note(TraceEvent::Unauthenticated { chunk_type: raw.chunk_type.0 });
            }
            return match held_back {
                // The ABORT may be genuine: a host that has lost the association cannot sign.
                true if is_abort => {
                    self.hear_abort(ctx);
                    Screened::Stop
                }
                // RFC 5061 section 5.2, D5: without AUTH before an ASCONF, "the receiver MUST silently discard this chunk and
                // the rest of the packet."
                true if raw.chunk_type == ChunkType::ASCONF => Screened::Stop,
                true => Screened::Skip,
                false => Screened::Pass,
            };
        }
        // One AUTH chunk covers the rest of the packet. A second AUTH chunk is not verified, because the verification
        // would hash the same bytes again. The rest of the packet is dropped.
        //= rfc4895#5.1-5
        let verdict = if screen.is_authenticated { Err(Unverified::Discard) } else { auth.verify(raw) };
        match verdict {
            Ok(()) => {
                screen.is_authenticated = true;
                if let Some(asconf) = &mut self.asconf {
                    asconf.is_keyed = auth.names_shared_key(raw);
                }
                self.transfer.integrity.on_signed();
                self.transfer.out.note(TraceEvent::AuthVerified);
                return Screened::Skip;
            }
            //= rfc4895#6.3-3
            Err(Unverified::UnknownHmac(hmac_id)) => {
                self.report(path, &Cause::UnsupportedHmacIdentifier { hmac_id }, ctx);
            }
            Err(Unverified::Discard) => {}
        }
        self.transfer.out.note(TraceEvent::AuthFailed);
        Screened::Stop
    }

    /// Returns the hash of the handshake, if keys are derived from it.
    pub(crate) fn handshake(&self) -> Option<HandshakeHash> {
        self.transfer.integrity.handshake()
    }

    /// Returns the authentication state for a key command, or an error if authentication was not negotiated.
    pub(crate) fn auth_mut(&mut self) -> Result<&mut Auth, AuthKeyError> {
        self.transfer.integrity.auth_mut().ok_or(AuthKeyError::NotNegotiated)
    }
}
