//! Tests whether a resource that a setting names is available, before the setting is written. A fault at a later start might go unnoticed.

use std::fs::File;
use std::net::{Ipv6Addr, UdpSocket};

use nix::unistd::User;
use ops::Page;
use rules::{Setting, Settings};

use crate::metrics_listener::{read_token, try_address};
use crate::{parse_peer_keys, read_peer_keys};

/// Listens on `port` of 127.0.0.1 for the daemon's page; `None` if `port` is 0.
///
/// # Errors
/// The reason why the port is not available, and a remedy.
pub fn bind_page(port: u16) -> Result<Option<Page>, String> {
    if port == 0 {
        return Ok(None);
    }
    let refused = |error| {
        format!("cannot open port {port} of 127.0.0.1 for the page ({error}): set page_port to another")
    };
    Page::bind(port).map(Some).map_err(refused)
}

/// Tests the resource that `setting` names in `settings`, before these settings are configured.
///
/// # Errors
/// The reason why a daemon would not start or would run without the resource, and a remedy.
pub fn try_setting(setting: &Setting, settings: &Settings) -> Result<(), String> {
    match setting.name {
        "page_port" => bind_page(settings.page_port).map(drop),
        "metrics_listen" => try_address(settings),
        "metrics_token" if !settings.metrics_token.is_empty() => {
            read_token(&settings.metrics_token).map(drop)
        }
        "peer_keys" => {
            let path = &settings.peer_keys;
            let keys = read_peer_keys(path).and_then(|text| parse_peer_keys(path, &text));
            keys.map(drop).map_err(|error| error.to_string())
        }
        "learned_store_roots" if !settings.learned_store_roots.is_empty() => {
            let path = &settings.learned_store_roots;
            File::open(path).map(drop).map_err(|error| format!("{path}: {error} (setting {})", setting.name))
        }
        "worker_user" => try_user(&settings.worker_user),
        _ => Ok(()),
    }
}

/// Tests whether a user exists. A number is accepted without a test, because a user ID need not belong to a named user.
fn try_user(wanted: &str) -> Result<(), String> {
    if wanted.is_empty() || wanted.parse::<u32>().is_ok() {
        return Ok(());
    }
    match User::from_name(wanted) {
        Ok(Some(_)) => Ok(()),
        Ok(None) => Err(format!(
            "user `{wanted}` does not exist: create it (useradd --system), or leave the setting empty"
        )),
        Err(error) => Err(format!("cannot look up user {wanted}: {error}")),
    }
}

/// Returns the reason why this UDP port cannot be opened now, if any. With such a port, the daemon starts without SCTP in UDP, and retries
/// every few seconds.
pub fn udp_port_problem(port: u16) -> Option<String> {
    let error = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, port)).err()?;
    Some(format!("UDP port {port} cannot be opened now ({error}): SCTP in UDP is unavailable without it"))
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;

    fn tried(name: &str, value: &str) -> Result<(), String> {
        let mut settings = Settings::default();
        let setting = settings.set(name, value).unwrap();
        try_setting(setting, &settings)
    }

    #[test]
    fn a_setting_with_an_unavailable_resource_is_refused() {
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = taken.local_addr().unwrap().port().to_string();
        for (name, value, told) in [
            ("page_port", port.as_str(), "set page_port to another"),
            ("metrics_listen", "192.0.2.7:9897", "set metrics_listen to another"),
            ("metrics_token", "/nonexistent/token", "/nonexistent/token: No such file"),
            ("peer_keys", "/nonexistent/keys", "/nonexistent/keys: No such file"),
            ("learned_store_roots", "/nonexistent/roots", "/nonexistent/roots: No such file"),
            ("worker_user", "nobody-of-this-name", "user `nobody-of-this-name` does not exist"),
        ] {
            assert!(tried(name, value).unwrap_err().contains(told), "{name}: {:?}", tried(name, value));
        }
        drop(taken);
        let good = [("page_port", port.as_str()), ("peer_keys", ""), ("worker_user", "60899")];
        for (name, value) in good.into_iter().chain([("udp_port", "1")]) {
            assert_eq!(tried(name, value), Ok(()), "{name}");
        }
    }

    #[test]
    fn a_udp_port_that_somebody_has_is_a_problem() {
        let taken = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = taken.local_addr().unwrap().port();
        assert!(udp_port_problem(port).unwrap().contains(&format!("UDP port {port}")));
        drop(taken);
        assert_eq!(udp_port_problem(port), None);
    }
}
