//! `./x deb`: a Debian package of the programs, their manual pages, completions and systemd units, in `target/deb`.
//!
//! Builds optimised programs. With `--static`, the command builds these programs for musl, so they need no libraries (run `rustup target
//! add` first). With `--bins DIR`, the command builds nothing, and packages the programs in DIR.
//!
//! The installed package starts no daemon, because an administrator must first decide which connections may use SCTP. The environment
//! variables DEBFULLNAME and DEBEMAIL name the maintainer.

use crate::Outcome;
use crate::tools::{cargo, output, root, succeeds};
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Programs that write manual pages and completions, each with the programs that its pages and completions describe.
const PROGRAMS: [(&str, &[&str]); 4] = [
    ("sctpify", &["sctpifyd", "sctpify", "shimrules"]),
    ("linkemu", &["linkemu"]),
    ("sctpify-router", &["sctpify-router"]),
    ("sctpify-sip", &["sctpify-sip", "sctpify-ua"]),
];
/// Examples for Prometheus and Grafana, in `packaging/prometheus`.
const EXAMPLES: [&str; 3] = ["sctpify-alerts.yml", "sctpify-alerts.test.yml", "sctpify-dashboard.json"];
/// Library that `sctpify run --sctp` preloads.
const LIBRARY: &str = "libsctpify.so";
const MUSL: &str = "x86_64-unknown-linux-musl";
/// Shells, each with the directory of its completions, and the prefix and suffix of the completions' file names.
const SHELLS: [(&str, &str, &str, &str); 3] = [
    ("bash", "usr/share/bash-completion/completions", "", ""),
    ("zsh", "usr/share/zsh/vendor-completions", "_", ""),
    ("fish", "usr/share/fish/vendor_completions.d", "", ".fish"),
];

/// Runs `./x deb [--static | --bins DIR]`.
pub(crate) fn run(args: &[String]) -> Result<Outcome> {
    let bins = match args {
        [] => build(false)?,
        [flag] if flag == "--static" => build(true)?,
        [flag, dir] if flag == "--bins" => PathBuf::from(dir),
        _ => bail!("usage: ./x deb [--static | --bins DIR]"),
    };
    let version = version_of(&bins.join("sctpify"))?;
    let architecture = output(Command::new("dpkg").arg("--print-architecture"))?.trim().to_owned();
    let out = target_dir().join("deb");
    let tree = out.join("tree");
    if tree.exists() {
        fs::remove_dir_all(&tree)?;
    }
    let is_static = is_static(&bins.join("sctpifyd"))?;
    fill(&tree, &bins, &version)?;
    if !is_static {
        // The static build has no preloadable library.
        install(&bins.join(LIBRARY), &tree.join("usr/lib/sctpify").join(LIBRARY), 0o644)?;
    }
    control_files(&tree, &version, &architecture, is_static)?;
    let package = out.join(format!("sctpify_{version}_{architecture}.deb"));
    let mut pack = Command::new("dpkg-deb");
    pack.args(["--build", "--root-owner-group"]).arg(&tree).arg(&package);
    ensure!(succeeds(&mut pack)?, "dpkg-deb failed");
    println!("{}", package.display());
    Ok(Outcome::Good)
}

fn target_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// Builds the programs, and returns their directory.
fn build(is_static: bool) -> Result<PathBuf> {
    let mut words = vec!["build", "--release", "--quiet"];
    ["sctpifyd", "cli", "linkemu", "router", "sipproxy"]
        .iter()
        .for_each(|package| words.extend(["--package", package]));
    let mut dir = target_dir();
    if is_static {
        words.extend(["--target", MUSL]);
        dir.push(MUSL);
    } else {
        words.extend(["--package", "libsctpify"]);
    }
    ensure!(succeeds(&mut cargo(&words))?, "the programs do not build");
    Ok(dir.join("release"))
}

/// Returns the version that a program reports. The package gets the same version.
fn version_of(program: &Path) -> Result<String> {
    let output = output(Command::new(program).arg("--version"))?;
    Ok(output.split_whitespace().nth(1).context("the program reports no version")?.to_owned())
}

/// Reports whether the program needs no shared C library.
fn is_static(program: &Path) -> Result<bool> {
    let output = Command::new("ldd").arg(program).output().context("cannot run ldd")?;
    Ok(!String::from_utf8_lossy(&output.stdout).contains("libc.so"))
}

fn fill(tree: &Path, bins: &Path, version: &str) -> Result<()> {
    for name in programs() {
        install(&bins.join(name), &tree.join("usr/sbin").join(name), 0o755)?;
    }
    let packaging = root().join("packaging");
    for unit in ["sctpifyd.service", "sctpify-sip.service"] {
        copy(&packaging.join(unit), &tree.join("usr/lib/systemd/system").join(unit), 0o644)?;
    }
    copy(&packaging.join("sctpify.sysusers"), &tree.join("usr/lib/sysusers.d/sctpify.conf"), 0o644)?;
    copy(&packaging.join("lintian-overrides"), &tree.join("usr/share/lintian/overrides/sctpify"), 0o644)?;
    documents(&tree.join("usr/share/doc/sctpify"), version)?;
    manual_pages(tree, bins)?;
    completions(tree, bins)
}

/// Copies a program or library without its symbols.
fn install(from: &Path, to: &Path, mode: u32) -> Result<()> {
    copy(from, to, mode)?;
    ensure!(succeeds(Command::new("strip").arg("--strip-unneeded").arg(to))?, "strip failed");
    Ok(())
}

fn programs() -> impl Iterator<Item = &'static str> {
    PROGRAMS.iter().flat_map(|(_, programs)| programs.iter().copied())
}

/// Installs our own documents, and the documents that every Debian package has.
fn documents(dir: &Path, version: &str) -> Result<()> {
    for name in ["CHANGELOG.md", "README.md"] {
        copy(&root().join(name), &dir.join(name), 0o644)?;
    }
    for name in EXAMPLES {
        copy(&root().join("packaging/prometheus").join(name), &dir.join("examples").join(name), 0o644)?;
    }
    let changelog = dir.join("changelog");
    let date = output(Command::new("git").args(["log", "-1", "--format=%cD"]).current_dir(root()))?;
    let text = format!(
        "sctpify ({version}) unstable; urgency=medium\n\n  * What a user notices is in CHANGELOG.md, beside this file.\n\n \
         -- {}  {date}",
        maintainer()
    );
    write(&changelog, &text, 0o644)?;
    compress(&changelog)?;
    let licence = fs::read_to_string(root().join("LICENSE-MIT"))?;
    let paragraphs =
        licence.lines().map(|line| if line.is_empty() { " .".to_owned() } else { format!(" {line}") });
    let licence: Vec<String> = paragraphs.collect();
    let text = format!(
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\nUpstream-Name: sctpify\n\nFiles: *\n\
         Copyright: {} the sctpify authors\nLicense: MIT or Apache-2.0\nComment:\n The programs contain Rust crates under these \
         and other permissive licences;\n deny.toml in the sources lists the licences, Cargo.lock the crates.\n\n\
         License: MIT\n{}\n\nLicense: Apache-2.0\n On Debian systems the text is in \
         /usr/share/common-licenses/Apache-2.0.\n",
        date.split(' ').nth(3).unwrap_or_default(),
        licence.join("\n")
    );
    write(&dir.join("copyright"), &text, 0o644)
}

/// Returns the maintainer, from the environment variables of Debian's tools.
fn maintainer() -> String {
    let variable = |name: &str, otherwise: &str| std::env::var(name).unwrap_or_else(|_| otherwise.to_owned());
    format!(
        "{} <{}>",
        variable("DEBFULLNAME", "the sctpify project"),
        variable("DEBEMAIL", "sctpify@localhost")
    )
}

/// Compresses a file without a time stamp, so the same sources produce the same package.
fn compress(file: &Path) -> Result<()> {
    ensure!(succeeds(Command::new("gzip").arg("-9nf").arg(file))?, "gzip failed");
    Ok(())
}

/// Installs the manual pages. Links `sctpify` into /usr/bin too, because /usr/sbin is not in the path of ordinary users.
fn manual_pages(tree: &Path, bins: &Path) -> Result<()> {
    let pages = tree.join("pages");
    for (writer, _) in PROGRAMS {
        let mut command = Command::new(bins.join(writer));
        ensure!(succeeds(command.arg("man").arg(&pages))?, "no manual pages by {writer}");
    }
    for page in fs::read_dir(&pages)? {
        let page = page?;
        let name = page.file_name().to_string_lossy().into_owned();
        let section = name.rsplit('.').next().unwrap_or("8").to_owned();
        let to = tree.join(format!("usr/share/man/man{section}/{name}"));
        copy(&page.path(), &to, 0o644)?;
        compress(&to)?;
    }
    fs::remove_dir_all(&pages)?;
    fs::create_dir_all(tree.join("usr/bin"))?;
    std::os::unix::fs::symlink("../sbin/sctpify", tree.join("usr/bin/sctpify"))?;
    Ok(())
}

/// Writes the completions of all programs, for all shells.
fn completions(tree: &Path, bins: &Path) -> Result<()> {
    for (writer, programs) in PROGRAMS {
        for (program, (shell, dir, before, after)) in
            programs.iter().flat_map(|program| SHELLS.map(|shell| (program, shell)))
        {
            let mut command = Command::new(bins.join(writer));
            let text = output(command.args(["completions", shell, "--for", program]))?;
            let file = tree.join(dir).join(format!("{before}{program}{after}"));
            write(&file, &text, 0o644)?;
        }
    }
    Ok(())
}

fn control_files(tree: &Path, version: &str, architecture: &str, is_static: bool) -> Result<()> {
    let depends = if is_static { String::new() } else { libraries(tree)? };
    let text = format!(
        "Package: sctpify\nVersion: {version}\nArchitecture: {architecture}\nSection: net\nPriority: optional\n\
         Maintainer: {}\n{depends}\
         Description: carries TCP connections over SCTP\n Carries the TCP connections of unmodified programs \
         over SCTP between hosts\n that both run it, so that they outlive the death of a path. Gives SCTP programs\n sockets where the \
         kernel has none.\n",
        maintainer()
    );
    write(&tree.join("DEBIAN/control"), &text, 0o644)?;
    for script in ["postinst", "prerm", "postrm"] {
        copy(&root().join("packaging").join(script), &tree.join("DEBIAN").join(script), 0o755)?;
    }
    Ok(())
}

/// Returns the line `Depends`. It lists the libraries that the programs need, with the versions of the build.
fn libraries(tree: &Path) -> Result<String> {
    let work = tree.with_file_name("shlibdeps");
    write(&work.join("debian/control"), "Source: sctpify\n\nPackage: sctpify\nArchitecture: any\n", 0o644)?;
    let programs = programs().map(|name| tree.join("usr/sbin").join(name));
    let mut ask = Command::new("dpkg-shlibdeps");
    ask.args(["--warnings=0", "-O"]).args(programs).current_dir(&work);
    let output = output(&mut ask).context("dpkg-shlibdeps is in the package dpkg-dev")?;
    let list =
        output.trim().strip_prefix("shlibs:Depends=").context("dpkg-shlibdeps printed unexpected output")?;
    Ok(format!("Depends: {list}\n"))
}

fn copy(from: &Path, to: &Path, mode: u32) -> Result<()> {
    let bytes = fs::read(from).with_context(|| format!("cannot read {}", from.display()))?;
    write_bytes(to, &bytes, mode)
}

fn write(to: &Path, text: &str, mode: u32) -> Result<()> {
    write_bytes(to, text.as_bytes(), mode)
}

fn write_bytes(to: &Path, bytes: &[u8], mode: u32) -> Result<()> {
    if let Some(dir) = to.parent() {
        fs::create_dir_all(dir)?;
    }
    fs::write(to, bytes).with_context(|| format!("cannot write {}", to.display()))?;
    fs::set_permissions(to, fs::Permissions::from_mode(mode))?;
    Ok(())
}
