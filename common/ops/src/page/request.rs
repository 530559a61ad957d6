//! Parses the head of an HTTP request. Refuses methods other than GET, and requests that the [`Access`] of the listener excludes. Begin
//! with [`PageRequest::read`].

use subtle::ConstantTimeEq;

/// Limit on the length of a request's head, in bytes.
pub(super) const HEAD_MAX: usize = 8 * 1024;

/// Condition that a request must meet before the listener answers.
#[derive(Clone)]
pub(super) enum Access {
    /// The `Host` header is `localhost` or 127.0.0.1 with this port. A foreign web page that resolves its own host name to 127.0.0.1
    /// therefore gets no answer (DNS rebinding).
    ThisHost(u16),
    /// The `Authorization` header has this token (RFC 6750 section 2.1). A browser adds no token to the requests of a foreign web page.
    Bearer(Vec<u8>),
}

impl Access {
    /// Reports whether the listener serves a page, and not only metrics.
    pub(super) fn is_page(&self) -> bool {
        matches!(self, Access::ThisHost(_))
    }
}

/// Omits the token.
impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Access::ThisHost(port) => f.debug_tuple("ThisHost").field(port).finish(),
            Access::Bearer(_) => f.debug_tuple("Bearer").finish_non_exhaustive(),
        }
    }
}

/// Reasons to refuse a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Refused {
    /// The request is not HTTP/1, or its head is longer than [`HEAD_MAX`].
    NotHttp,
    /// The method is not GET.
    NotGet,
    /// The `Host` header is missing, repeated, or names another host.
    OtherHost,
    /// The `Authorization` header is missing, repeated, or has another token.
    OtherToken,
}

impl Refused {
    pub(super) fn status(self) -> &'static str {
        match self {
            Refused::NotHttp => "400 Bad Request",
            Refused::NotGet => "405 Method Not Allowed",
            Refused::OtherHost => "403 Forbidden",
            Refused::OtherToken => "401 Unauthorized\r\nWWW-Authenticate: Bearer",
        }
    }
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Refused::NotHttp => "not an HTTP/1 request of acceptable length",
            Refused::NotGet => "only GET is allowed",
            Refused::OtherHost => "the Host header must be localhost or 127.0.0.1, with the port",
            Refused::OtherToken => "the Authorization header must be `Bearer` and this listener's token",
        })
    }
}

/// An accepted request: the path and the query of its target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageRequest<'a> {
    path: &'a str,
    query: &'a str,
}

impl<'a> PageRequest<'a> {
    /// Parses the head of a request. Returns an error if a listener with this access must not answer the request.
    pub(super) fn read(head: &'a [u8], access: &Access) -> Result<PageRequest<'a>, Refused> {
        let target = target(head, access)?;
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        Ok(PageRequest { path, query })
    }

    /// Returns the path of the request's target, such as `/metrics`.
    pub fn path(&self) -> &'a str {
        self.path
    }

    /// Returns the first value of `name` in the query (`?name=value&...`); `None` if the value is missing or empty.
    pub fn value(&self, name: &str) -> Option<String> {
        let mut pairs = form_urlencoded::parse(self.query.as_bytes());
        let (_, value) = pairs.find(|(known, _)| known == name)?;
        Some(value.into_owned()).filter(|value| !value.is_empty())
    }
}

/// Returns the target of a request. Returns an error if a listener with this access must not answer the request.
fn target<'a>(head: &'a [u8], access: &Access) -> Result<&'a str, Refused> {
    let end = head.windows(4).position(|end| end == b"\r\n\r\n").ok_or(Refused::NotHttp)?;
    let text = std::str::from_utf8(&head[..end]).map_err(|_| Refused::NotHttp)?;
    let mut lines = text.split("\r\n");
    let mut words = lines.next().unwrap_or_default().split(' ');
    let (Some(method), Some(target), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(Refused::NotHttp);
    };
    if !version.starts_with("HTTP/1.") {
        return Err(Refused::NotHttp);
    }
    if method != "GET" {
        return Err(Refused::NotGet);
    }
    let (wanted, refusal) = match access {
        Access::ThisHost(_) => ("host", Refused::OtherHost),
        Access::Bearer(_) => ("authorization", Refused::OtherToken),
    };
    let named = lines.filter_map(|line| line.split_once(':'));
    let mut values =
        named.filter(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, value)| value.trim());
    let (Some(value), None) = (values.next(), values.next()) else { return Err(refusal) };
    let is_admitted = match access {
        Access::ThisHost(port) => is_ours(value, *port),
        Access::Bearer(token) => has_token(value, token),
    };
    if is_admitted { Ok(target) } else { Err(refusal) }
}

/// Reports whether the value of an `Authorization` header has this token. The comparison takes the same time for all tokens of one length.
fn has_token(value: &str, token: &[u8]) -> bool {
    let Some((scheme, shown)) = value.split_once(' ') else { return false };
    scheme.eq_ignore_ascii_case("bearer") && bool::from(shown.trim_start().as_bytes().ct_eq(token))
}

fn is_ours(host: &str, port: u16) -> bool {
    let name = host.strip_suffix(&format!(":{port}"));
    name.is_some_and(|name| name.eq_ignore_ascii_case("localhost") || name == "127.0.0.1")
}

#[cfg(test)]
mod tests {
    use super::*;

    const THIS_HOST: Access = Access::ThisHost(9897);

    fn asked(line: &str, host: &str) -> Result<String, Refused> {
        let head = format!("{line}\r\n{host}Accept: */*\r\n\r\n");
        PageRequest::read(head.as_bytes(), &THIS_HOST).map(|request| request.path().to_owned())
    }

    #[test]
    fn if_a_token_is_set_it_is_required_and_the_host_header_is_not_checked() {
        let access = Access::Bearer(b"0123456789abcdef".to_vec());
        let asked = |headers: &str| {
            let head = format!("GET /metrics HTTP/1.1\r\nHost: 192.0.2.7:9897\r\n{headers}\r\n");
            PageRequest::read(head.as_bytes(), &access).map(|request| request.path().to_owned())
        };
        for good in
            ["Authorization: Bearer 0123456789abcdef\r\n", "authorization:bearer  0123456789abcdef \r\n"]
        {
            assert_eq!(asked(good), Ok("/metrics".into()), "{good}");
        }
        let good = "Authorization: Bearer 0123456789abcdef\r\n";
        for bad in [
            "",
            "Authorization: Bearer\r\n",
            "Authorization: Bearer \r\n",
            "Authorization: 0123456789abcdef\r\n",
            "Authorization: Basic 0123456789abcdef\r\n",
            "Authorization: Bearer 0123456789abcdeF\r\n",
            "Authorization: Bearer 0123456789abcde\r\n",
            "Authorization: Bearer 0123456789abcdef0\r\n",
            &good.repeat(2),
        ] {
            assert_eq!(asked(bad), Err(Refused::OtherToken), "{bad}");
        }
        assert!(!format!("{access:?}").contains("0123"), "{access:?}");
    }

    #[test]
    fn a_request_with_a_local_host_header_is_answered() {
        assert_eq!(asked("GET / HTTP/1.1", "Host: localhost:9897\r\n"), Ok("/".into()));
        assert_eq!(asked("GET /metrics?x=1 HTTP/1.1", "HOST:127.0.0.1:9897\r\n"), Ok("/metrics".into()));
    }

    #[test]
    fn a_request_with_another_host_header_is_refused() {
        for host in ["evil.example:9897", "localhost:80", "localhost", "127.0.0.1.evil.example:9897"] {
            let line = format!("Host: {host}\r\n");
            assert_eq!(asked("GET / HTTP/1.1", &line), Err(Refused::OtherHost), "{host}");
        }
        assert_eq!(asked("GET / HTTP/1.1", ""), Err(Refused::OtherHost));
        let two = "Host: localhost:9897\r\nHost: evil.example:9897\r\n";
        assert_eq!(asked("GET / HTTP/1.1", two), Err(Refused::OtherHost));
    }

    #[test]
    fn only_get_is_allowed() {
        assert_eq!(asked("POST / HTTP/1.1", "Host: localhost:9897\r\n"), Err(Refused::NotGet));
    }

    #[test]
    fn a_truncated_head_or_another_protocol_is_refused() {
        assert_eq!(
            PageRequest::read(b"GET / HTTP/1.1\r\nHost: localhost:9897\r\n", &THIS_HOST),
            Err(Refused::NotHttp)
        );
        assert_eq!(asked("hello", "Host: localhost:9897\r\n"), Err(Refused::NotHttp));
        assert_eq!(PageRequest::read(b"\xff\xfe\r\n\r\n", &THIS_HOST), Err(Refused::NotHttp));
    }

    #[test]
    fn values_of_the_query_are_decoded_and_an_empty_one_is_none() {
        let head = b"GET /list.json?search=a%20%3Cb%3E%26+c&after=&count=7&count=8 HTTP/1.1\r\nHost: localhost:9897\r\n\r\n";
        let request = PageRequest::read(head, &THIS_HOST).unwrap();
        let values = ["search", "after", "count", "other"].map(|name| request.value(name));
        assert_eq!(request.path(), "/list.json");
        assert_eq!(values, [Some("a <b>& c".into()), None, Some("7".into()), None]);
    }
}
