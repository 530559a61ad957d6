//! The listener from which other hosts get the daemon's metrics (settings `metrics_listen` and `metrics_token`).
//!
//! Begin with [`bind_metrics`].

use std::net::{SocketAddr, TcpListener};
use std::ops::RangeInclusive;
use std::path::Path;

use ops::Page;
use rules::Settings;

use crate::secret_file::read_secret;

/// Lengths of a token, in bytes.
const TOKEN_BYTES: RangeInclusive<usize> = 16..=1024;
/// Limit on the bytes read from the file of a token.
const FILE_BYTES_MAX: u64 = 4096;

/// Opens the listener on the address of the setting `metrics_listen`. Returns `None` if the setting is empty.
///
/// # Errors
/// The reason why the listener is not available, and a remedy.
pub fn bind_metrics(settings: &Settings) -> Result<Option<Page>, String> {
    let Some(address) = settings.metrics_listen else { return Ok(None) };
    if settings.metrics_token.is_empty() {
        return Err(format!(
            "metrics_listen={address} needs a token: write one to a file (openssl rand -hex 32), and set metrics_token to \
             its path"
        ));
    }
    let token = read_token(&settings.metrics_token)?;
    Page::bind_with_token(address, &token).map(Some).map_err(|error| unavailable(address, &error))
}

/// Tests whether this host has the address of `metrics_listen`. The test uses any free port, because a running daemon may
/// have the configured port open.
pub(crate) fn try_address(settings: &Settings) -> Result<(), String> {
    let Some(address) = settings.metrics_listen else { return Ok(()) };
    TcpListener::bind((address.ip(), 0)).map(drop).map_err(|error| unavailable(address, &error))
}

/// Reads the token from its file.
pub(crate) fn read_token(path: &str) -> Result<String, String> {
    let text =
        read_secret(Path::new(path), FILE_BYTES_MAX, "metrics_token").map_err(|error| error.to_string())?;
    let token = text.trim();
    if TOKEN_BYTES.contains(&token.len()) && token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Ok(token.to_owned());
    }
    Err(format!(
        "{path}: a token has {} to {} printable ASCII characters and no blanks: openssl rand -hex 32 (setting metrics_token)",
        TOKEN_BYTES.start(),
        TOKEN_BYTES.end()
    ))
}

fn unavailable(address: SocketAddr, error: &std::io::Error) -> String {
    format!("cannot listen on {address} for the metrics ({error}): set metrics_listen to another")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// Returns settings with a loopback address and the token in a file with this mode.
    fn settings_with(dir: &Path, token: &str, mode: u32) -> Settings {
        let path = dir.join("token");
        std::fs::write(&path, token).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        let mut settings = Settings::default();
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        settings.set("metrics_listen", &free.to_string()).unwrap();
        settings.set("metrics_token", path.to_str().unwrap()).unwrap();
        settings
    }

    fn refusal(settings: &Settings) -> String {
        bind_metrics(settings).expect_err("refused")
    }

    #[test]
    fn a_listener_needs_a_private_file_with_a_token() {
        let dir = tempfile::tempdir().unwrap();
        let token = "0123456789abcdef";
        let good = settings_with(dir.path(), &format!("{token}\n"), 0o600);
        assert!(bind_metrics(&good).unwrap().is_some());
        assert!(refusal(&settings_with(dir.path(), token, 0o644)).contains("chmod 600"));
        for bad in ["", "0123456789abcde", "0123456789 abcdef", "0123456789abcdé", &token.repeat(70)] {
            let refusal = refusal(&settings_with(dir.path(), bad, 0o600));
            assert!(
                refusal.contains("16 to 1024 printable") && (bad.is_empty() || !refusal.contains(bad)),
                "{refusal}"
            );
        }
        let mut without = good.clone();
        without.set("metrics_token", "").unwrap();
        assert!(refusal(&without).contains("needs a token"));
        assert!(bind_metrics(&Settings::default()).unwrap().is_none());
    }

    #[test]
    fn an_address_of_another_host_is_refused() {
        let mut settings = Settings::default();
        settings.set("metrics_listen", "192.0.2.7:9897").unwrap();
        assert!(try_address(&settings).unwrap_err().contains("set metrics_listen to another"));
        settings.set("metrics_listen", "127.0.0.1:9897").unwrap();
        assert_eq!(try_address(&settings), Ok(()));
    }
}
