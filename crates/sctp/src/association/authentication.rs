//! Which chunks of a packet are let through (RFC 4895 section 6.3), and the commands about keys.

use wire::{Cause, ChunkType, RawChunk};

use super::{Association, Context};
use crate::error::AuthKeyError;
use crate::extension::auth::{Auth, HandshakeHash, Unverified};
use crate::path::PathIndex;
use crate::trace::TraceEvent;

/// What is known of a packet's authentication so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Screen {
    /// A good AUTH chunk covers the chunks that follow.
    pub(crate) is_authenticated: bool,
}

/// What becomes of a chunk.
pub(super) enum Screened {
    /// It is handled.
    Pass,
    /// It is done with; the next one follows.
    Skip,
    /// The rest of the packet is dropped.
    Stop,
}

impl Association {
    /// Verifies AUTH chunks, and holds back chunks that need one and have none.
    pub(super) fn screen(
        &mut self,
        path: PathIndex,
        raw: &RawChunk<'_>,
        screen: &mut Screen,
        ctx: &mut Context<'_>,
    ) -> Screened {
        let Some(auth) = &self.auth else { return Screened::Pass };
        if raw.chunk_type != ChunkType::AUTH {
            // RFC 4895 section 6.3: the receiver "MUST silently discard these chunks if they are not placed after an AUTH chunk
            // in the packet."
            //= rfc4895#6.3-1
            let is_abort = raw.chunk_type == ChunkType::ABORT;
            let is_needed = auth.requires(raw.chunk_type) || (is_abort && auth.has_shared_keys_only());
            let held_back = is_needed && !screen.is_authenticated;
            if held_back {
                self.note(TraceEvent::Unauthenticated { chunk_type: raw.chunk_type.0 });
            }
            return match held_back {
                // It may be true for all that: a host without the association has no way to sign.
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
        // One AUTH chunk covers all that follows it: a second one would only cost work, once for each byte behind it.
        //= rfc4895#5.1-5
        let verdict = if screen.is_authenticated { Err(Unverified::Discard) } else { auth.verify(raw) };
        match verdict {
            Ok(()) => {
                screen.is_authenticated = true;
                self.is_signed = true;
                if let Some(asconf) = &mut self.asconf {
                    asconf.is_keyed = auth.names_shared_key(raw);
                }
                self.note(TraceEvent::AuthVerified);
                return Screened::Skip;
            }
            //= rfc4895#6.3-3
            Err(Unverified::UnknownHmac(hmac_id)) => {
                self.report(path, &Cause::UnsupportedHmacIdentifier { hmac_id }, ctx);
            }
            Err(Unverified::Discard) => {}
        }
        self.note(TraceEvent::AuthFailed);
        Screened::Stop
    }

    /// The hash of the handshake, if keys come of it.
    pub(crate) fn handshake(&self) -> Option<HandshakeHash> {
        self.auth.as_ref().and_then(|auth| auth.handshake())
    }

    /// The keys of authentication, for a command.
    pub(crate) fn auth_mut(&mut self) -> Result<&mut Auth, AuthKeyError> {
        self.auth.as_deref_mut().ok_or(AuthKeyError::NotNegotiated)
    }
}
