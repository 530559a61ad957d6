//! Sets the full version of the build, with the commit that git reports. Development builds omit the commit. Otherwise, each commit would
//! rebuild every program.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let version = std::env::var("CARGO_PKG_VERSION").unwrap_or_default();
    let is_optimised = std::env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let commit = is_optimised.then(commit).flatten();
    let full = commit.map_or_else(|| version.clone(), |commit| format!("{version}+git{commit}"));
    println!("cargo::rustc-env=SCTPIFY_FULL_VERSION={full}");
}

/// Returns the time and hash of the commit that is checked out; `None` without git or a repository.
fn commit() -> Option<String> {
    // Git writes this file when another commit is checked out.
    println!(
        "cargo::rerun-if-changed={}",
        git(&["rev-parse", "--path-format=absolute", "--git-path", "logs/HEAD"])?
    );
    git(&["log", "-1", "--abbrev=10", "--date=format-local:%Y%m%d.%H%M", "--format=%cd.%h"])
}

fn git(words: &[&str]) -> Option<String> {
    // The user who builds is often root, and the repository may belong to another user. Without this option, git would refuse such a
    // repository. Git only reads the repository here.
    let output =
        Command::new("git").args(["-c", "safe.directory=*"]).args(words).env("TZ", "UTC").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}
