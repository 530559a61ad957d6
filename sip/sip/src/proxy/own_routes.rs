//! The Routes of a request that lead to this proxy (RFC 3261 section 16.4), and the marks and tokens in them.

use bytes::Bytes;

use super::ProxyConfig;
use super::flows::{Flows, is_flow_route};
use super::leg::Leg;
use super::marks::DialogMarks;
use crate::address::Address;
use crate::essentials::Essentials;
use crate::fault::Fault;
use crate::header::{Header, Name};
use crate::message::{Message, Start};
use crate::transport::Hop;
use crate::uri::Uri;

/// The contents of the Routes that lead to this proxy.
#[derive(Debug)]
pub(super) struct Taken {
    /// Dialog that the mark in one of these Routes identifies, if the request belongs to that dialog.
    pub(super) leg: Option<Leg>,
    /// Flow to which another proxy directs the request.
    pub(super) flow: Option<Hop>,
}

/// Removes the Routes that lead to this proxy (section 16.4), and returns their contents.
///
/// If proxies share users, a request may arrive here although its Route names another of these proxies, for example after that proxy has
/// failed. A Route with a valid mark is then also removed, because the mark proves that one of these proxies wrote the Route.
pub(super) fn take_own_routes(
    config: &ProxyConfig,
    marks: &DialogMarks,
    flows: &Flows,
    request: &mut Message,
    known: &Essentials,
) -> Result<Taken, Fault> {
    let marked = |uri: &Uri<'_>| known.to_tag.as_ref().and_then(|_| marks.marked(uri, known));
    let mut leg = Uri::parse(request.request_uri()).ok().and_then(|uri| marked(&uri));
    undo_strict_routing(config, request)?;
    // The host of the Route that was removed last.
    let mut host: Option<Vec<u8>> = None;
    // Our Record-Route has two entries if the transports of the two sides differ (RFC 5658). No more than two adjacent Routes are
    // therefore removed. A third Route of ours would be a loop.
    for _ in 0..2 {
        let Some(first) = request.elements(Name::Route).next() else { break };
        let address = Address::parse(first)?;
        let uri = Uri::parse(address.uri)?;
        let mark = marked(&uri);
        let is_ours = config.is_ours(&uri);
        if is_ours && is_flow_route(config, &uri) {
            let flow = flows.flow_of(config, &uri)?;
            request.pop_first(Name::Route);
            return Ok(Taken { leg, flow: Some(flow) });
        }
        let is_in_stead =
            config.is_shared() && mark.is_some() && host.as_ref().is_none_or(|h| *h == uri.host);
        if !is_ours && !is_in_stead {
            break;
        }
        host = Some(uri.host.to_vec());
        leg = leg.or(mark);
        request.pop_first(Name::Route);
    }
    Ok(Taken { leg, flow: None })
}

/// Undoes strict routing. A strict router has put our Record-Route URI into the Request-URI, and the real Request-URI after the Routes.
fn undo_strict_routing(config: &ProxyConfig, request: &mut Message) -> Result<(), Fault> {
    let Ok(uri) = Uri::parse(request.request_uri()) else { return Ok(()) };
    let is_our_record = uri.user.is_none() && uri.param("lr").is_some() && config.is_ours(&uri);
    let routes: Vec<Vec<u8>> = request.elements(Name::Route).map(<[u8]>::to_vec).collect();
    let Some((last, rest)) = routes.split_last().filter(|_| is_our_record) else { return Ok(()) };
    let target = Bytes::copy_from_slice(Address::parse(last)?.uri);
    Uri::parse(&target)?;
    request.remove(Name::Route);
    if !rest.is_empty() {
        request.push(Header::of_bytes(Name::Route, &rest.join(&b", "[..])));
    }
    if let Start::Request { uri, .. } = &mut request.start {
        *uri = target;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::testing::{Knowledge, config, request};

    /// Takes our own Routes out of a request. Returns the remaining Routes, and the Request-URI.
    fn left(uri: &str, routes: &str) -> (Vec<String>, String) {
        let mut request = request(&format!("OPTIONS {uri}\nRoute: {routes}"));
        let known = Essentials::of(&request).unwrap();
        let flows = Knowledge::default().flows;
        take_own_routes(&config(), &DialogMarks::new([1; 32]), &flows, &mut request, &known).unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (request.elements(Name::Route).map(text).collect(), text(request.request_uri()))
    }

    #[test]
    fn two_adjacent_routes_of_ours_are_removed_and_no_more() {
        let (ours, other) = ("<sip:192.0.2.1;lr>", "<sip:192.0.2.9;lr>");
        let uri = "sip:a@example.com".to_owned();
        assert_eq!(left(&uri, &format!("{ours}, {ours}, {other}")), (vec![other.to_owned()], uri.clone()));
        assert_eq!(left(&uri, &format!("{ours}, {ours}, {ours}")), (vec![ours.to_owned()], uri.clone()));
        assert_eq!(left(&uri, &format!("{other}, {ours}")), (vec![other.to_owned(), ours.to_owned()], uri));
    }

    #[test]
    fn a_strict_routers_request_gets_its_request_uri_back() {
        let (routes, uri) = left("sip:192.0.2.1;lr", "<sip:192.0.2.9;lr>, <sip:a@example.com>");
        assert_eq!((routes, uri), (vec!["<sip:192.0.2.9;lr>".to_owned()], "sip:a@example.com".to_owned()));
    }
}
