//! Headless browser with a phone-sized window, which renders a page of one of our programs.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, ensure};

use crate::host::Host;

const CHROMIUM: &str = "/usr/bin/chromium";
/// Virtual time for a page: 4 s. The page refreshes itself once per second.
const PAGE_TIME: &str = "--virtual-time-budget=4000";
/// Limit on the run time of the browser.
const LIMIT: Duration = Duration::from_secs(90);
/// Minimum size of a picture, in bytes; a smaller one counts as blank.
const PICTURE_MIN: usize = 10_000;

/// Browser on a host.
#[derive(Debug)]
pub struct Browser<'a> {
    host: &'a Host,
    profile: PathBuf,
}

impl<'a> Browser<'a> {
    /// Finds the browser. It keeps its files in a directory of the host. If the browser is not installed,
    /// reports a skipped test and returns `None`.
    ///
    /// # Errors
    /// When the directory cannot be created.
    pub fn find(host: &'a Host) -> Result<Option<Browser<'a>>> {
        if !Path::new(CHROMIUM).exists() {
            crate::skip("Chromium is missing (scripts/setup.sh)");
            return Ok(None);
        }
        Ok(Some(Browser { host, profile: host.dir()?.join("chromium") }))
    }

    /// Returns the elements of a page as HTML, after some seconds of virtual time.
    ///
    /// # Errors
    /// When the browser fails, with its output.
    pub fn drawn(&self, url: &str) -> Result<String> {
        self.browse("--dump-dom", url)
    }

    /// Returns a picture of the page (PNG) that is not blank.
    ///
    /// # Errors
    /// When the browser fails, or the picture is blank.
    pub fn picture(&self, url: &str) -> Result<Vec<u8>> {
        let file = self.profile.with_extension("png");
        self.browse(&format!("--screenshot={}", file.display()), url)?;
        let bytes = fs::read(&file)?;
        ensure!(bytes.starts_with(b"\x89PNG") && bytes.len() > PICTURE_MIN, "{} bytes", bytes.len());
        Ok(bytes)
    }

    fn browse(&self, what: &str, url: &str) -> Result<String> {
        let profile = format!("--user-data-dir={}", self.profile.display());
        let mut command = self.host.command(CHROMIUM);
        command.args(["--headless=new", "--no-sandbox", "--disable-gpu", PAGE_TIME, "--window-size=390,844"]);
        command.args([&profile, what, url]);
        Ok(self.host.run("chromium", command, LIMIT)?.good()?.stdout)
    }
}
