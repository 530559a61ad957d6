//! A browser without a window, as large as a phone's, that draws a page of one of our programs.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, ensure};

use crate::host::Host;

const CHROMIUM: &str = "/usr/bin/chromium";
/// How long a page has, in the page's own time: some of its looks, one a second.
const PAGE_TIME: &str = "--virtual-time-budget=4000";
/// How long the browser may take.
const LIMIT: Duration = Duration::from_secs(90);
/// A picture with less than this shows nothing.
const PICTURE_MIN: usize = 10_000;

/// A browser on a host.
#[derive(Debug)]
pub struct Browser<'a> {
    host: &'a Host,
    profile: PathBuf,
}

impl<'a> Browser<'a> {
    /// The browser, whose files go to a directory of the host's; `None` where none is installed, which is told as a skipped test.
    ///
    /// # Errors
    /// When the directory cannot be made.
    pub fn find(host: &'a Host) -> Result<Option<Browser<'a>>> {
        if !Path::new(CHROMIUM).exists() {
            crate::skip("there is no Chromium (scripts/setup.sh)");
            return Ok(None);
        }
        Ok(Some(Browser { host, profile: host.dir()?.join("chromium") }))
    }

    /// The elements of a page as HTML, after some seconds of its own time.
    ///
    /// # Errors
    /// When the browser fails, with what it said.
    pub fn drawn(&self, url: &str) -> Result<String> {
        self.browse("--dump-dom", url)
    }

    /// A picture of the page (PNG), with something on it.
    ///
    /// # Errors
    /// When the browser fails, or has drawn nothing.
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
