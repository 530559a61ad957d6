//! The part of SDP (RFC 4566, RFC 3264) that a call with a PCMU tone needs.

use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;

/// Builds a session description with one audio stream. The stream carries PCMU in both directions. `rtp` is our address for received
/// packets.
pub fn audio_session(rtp: SocketAddr) -> Bytes {
    let (family, ip, port) = (if rtp.is_ipv4() { "IP4" } else { "IP6" }, rtp.ip(), rtp.port());
    let text = format!(
        "v=0\r\no=- 1 1 IN {family} {ip}\r\ns=-\r\nc=IN {family} {ip}\r\nt=0 0\r\nm=audio {port} RTP/AVP 0\r\n\
         a=rtpmap:0 PCMU/8000\r\na=sendrecv\r\n"
    );
    Bytes::from(text)
}

/// Builds a session description with one inactive audio stream (RFC 3264 section 5.1). The stream has the port of the discard protocol.
pub(super) fn silent_session(host: IpAddr) -> Bytes {
    let family = if host.is_ipv4() { "IP4" } else { "IP6" };
    let text = format!(
        "v=0\r\no=- 1 1 IN {family} {host}\r\ns=-\r\nc=IN {family} {host}\r\nt=0 0\r\nm=audio 9 RTP/AVP 0\r\n\
         a=rtpmap:0 PCMU/8000\r\na=inactive\r\n"
    );
    Bytes::from(text)
}

/// Returns the peer's address for the first audio stream of a session. Returns `None` if the session has no audio stream, if the peer
/// rejected the stream (port 0), or if the peer does not receive on the stream.
pub fn audio_address(session: &[u8]) -> Option<SocketAddr> {
    let lines: Vec<&str> = std::str::from_utf8(session).ok()?.lines().collect();
    let mut sections = lines.chunk_by(|_, next| !next.starts_with("m="));
    let (head, audio) = (sections.next()?, sections.find(|section| section[0].starts_with("m=audio "))?);
    // A line of the stream overrides the same line of the session.
    let receives = audio.iter().chain(head).find_map(|line| receives(line)).unwrap_or(true);
    let ip = audio.iter().chain(head).find_map(|line| connection(line))?;
    let port = audio[0].split([' ', '/']).nth(1)?.parse().ok().filter(|port| *port > 0)?;
    receives.then_some(SocketAddr::new(ip, port))
}

/// Returns the direction in an attribute line: true if the peer receives.
fn receives(line: &str) -> Option<bool> {
    match line {
        "a=sendrecv" | "a=recvonly" => Some(true),
        "a=inactive" | "a=sendonly" => Some(false),
        _ => None,
    }
}

/// Returns the address in a connection line.
fn connection(line: &str) -> Option<IpAddr> {
    line.strip_prefix("c=IN ")?.split(' ').nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offered_session_is_understood() {
        for address in ["192.0.2.1:4000", "[2001:db8::1]:4000"] {
            let address: SocketAddr = address.parse().unwrap();
            assert_eq!(audio_address(&audio_session(address)), Some(address));
            assert_eq!(audio_address(&silent_session(address.ip())), None);
        }
    }

    #[test]
    fn a_media_level_address_overrides_the_session_level_address() {
        let text = "v=0\r\nc=IN IP4 192.0.2.1\r\nm=audio 7 RTP/AVP 0\r\nc=IN IP4 192.0.2.2\r\nm=video 8 RTP/AVP 31\r\n";
        assert_eq!(audio_address(text.as_bytes()), "192.0.2.2:7".parse().ok());
        assert_eq!(audio_address(text.replace("audio 7", "audio 0").as_bytes()), None);
        assert_eq!(audio_address(b"\xff"), None);
    }

    #[test]
    fn lines_of_another_stream_say_nothing_about_the_audio() {
        let text = "v=0\r\nc=IN IP4 192.0.2.1\r\na=inactive\r\nm=video 8 RTP/AVP 31\r\nc=IN IP4 192.0.2.3\r\na=sendonly\r\n\
                    m=audio 7 RTP/AVP 0\r\na=recvonly\r\nm=audio 9 RTP/AVP 0\r\nc=IN IP4 192.0.2.4\r\na=inactive\r\n";
        assert_eq!(audio_address(text.as_bytes()), "192.0.2.1:7".parse().ok());
        assert_eq!(
            audio_address(text.replace("a=recvonly\r\n", "").as_bytes()),
            None,
            "the session's attribute"
        );
    }
}
