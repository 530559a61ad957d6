//! Unpacks the Debian package of `./x deb` and the files of `./x release`, and checks them with the tools that use such files: lintian, the
//! shells, systemd, rpm and tar.
//!
//! The tests need the programs `sctpifyd`, `sctpify`, `shimrules`, `linkemu`, `sctpify-router`, `sctpify-sip` and `sctpify-ua`, and the
//! library `libsctpify.so`. These files must be next to this test, where `./x test` builds them, or in SCTPIFY_BIN_DIR. The tests also need
//! the packages in scripts/packages.txt.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use testbed::Programs;

/// The package, which is built and unpacked once.
static PACKAGE: LazyLock<Package> = LazyLock::new(Package::make);

struct Package {
    file: PathBuf,
    tree: PathBuf,
}

impl Package {
    fn make() -> Package {
        let dir = empty("package");
        let file = PathBuf::from(good(&mut make("deb", &dir)).lines().next_back().unwrap());
        let tree = dir.join("unpacked");
        good(Command::new("dpkg-deb").arg("-x").arg(&file).arg(&tree));
        Package { file, tree }
    }

    fn path(&self, inside: &str) -> PathBuf {
        self.tree.join(inside)
    }
}

/// Creates an empty directory for a test.
fn empty(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).unwrap();
    dir
}

/// Returns the command `./x` that packages the built programs, with its output in `dir`.
fn make(kind: &str, dir: &Path) -> Command {
    let programs = Programs::find().unwrap().path("sctpify").parent().unwrap().to_owned();
    let mut make = Command::new(env!("CARGO_BIN_EXE_xtask"));
    make.args([kind, "--bins"]).arg(programs).env("CARGO_TARGET_DIR", dir);
    // The programs are large, because they are not optimised.
    make.env("DPKG_DEB_COMPRESSOR_LEVEL", "1");
    make
}

/// Returns the output of a command that must succeed.
fn good(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
#[ignore = "needs the programs built, and Debian's tools"]
fn programs_pages_and_documents_lie_where_debian_has_them_and_lintian_finds_no_fault() {
    let package = &*PACKAGE;
    let mode = |path: &str| fs::metadata(package.path(path)).map(|meta| meta.permissions().mode() & 0o777);
    for program in [
        "usr/sbin/sctpifyd",
        "usr/sbin/sctpify",
        "usr/sbin/shimrules",
        "usr/sbin/linkemu",
        "usr/sbin/sctpify-router",
        "usr/bin/sctpify",
        "usr/sbin/sctpify-sip",
        "usr/sbin/sctpify-ua",
    ] {
        assert_eq!(mode(program).ok(), Some(0o755), "{program}");
    }
    for file in [
        "usr/lib/systemd/system/sctpifyd.service",
        "usr/lib/systemd/system/sctpify-sip.service",
        "usr/lib/sysusers.d/sctpify.conf",
        "usr/share/man/man8/sctpify-sip.8.gz",
        "usr/share/man/man8/sctpify-sip-trace.8.gz",
        "usr/share/man/man8/sctpify-ua.8.gz",
        "usr/share/man/man8/sctpifyd.8.gz",
        "usr/share/man/man8/shimrules.8.gz",
        "usr/share/man/man8/linkemu-add.8.gz",
        "usr/share/man/man8/sctpify-router-tc-up.8.gz",
        "usr/share/man/man5/sctpify.toml.5.gz",
        "usr/share/doc/sctpify/copyright",
        "usr/share/doc/sctpify/changelog.gz",
    ] {
        assert_eq!(mode(file).ok(), Some(0o644), "{file}");
    }
    let fields = good(Command::new("dpkg-deb").arg("-f").arg(&package.file));
    assert!(fields.contains("Package: sctpify") && fields.contains("libc6 (>= "), "{fields}");
    good(Command::new("lintian").args(["--allow-root", "--fail-on", "error,warning"]).arg(&package.file));
}

#[test]
#[ignore = "needs the programs built, and Debian's tools"]
fn completions_load_in_bash_zsh_and_fish() {
    let package = &*PACKAGE;
    // Cells: a program, one of its subcommands or nothing, the start of a word, and the whole word.
    for (program, command, begin, whole) in [
        ("sctpify", "", "cap", "capture"),
        ("sctpify-sip", "", "conn", "connections"),
        ("sctpify-sip", "trace", "--meth", "--method"),
        ("sctpify-ua", "", "--transp", "--transport"),
        ("sctpify-router", "", "flo", "flows"),
        ("sctpify-router", "flows", "--metr", "--metrics-port"),
        ("linkemu", "", "ad", "add"),
    ] {
        let bash = package.path("usr/share/bash-completion/completions").join(program);
        let before = format!("{program} {command}");
        let at = before.split_whitespace().count();
        let script = format!(
            ". {}; COMP_WORDS=({before} {begin}) COMP_CWORD={at}; \
             function=$(complete -p {program} | sed 's/.* -F \\([^ ]*\\) .*/\\1/'); \
             $function {program} {begin} {program}; echo \"${{COMPREPLY[@]}}\"",
            bash.display()
        );
        assert_eq!(good(Command::new("bash").args(["--norc", "-c", &script])), format!("{whole}\n"));
        let zsh = package.path("usr/share/zsh/vendor-completions");
        let script = format!(
            "fpath=({} $fpath); autoload -Uz compinit; compinit -u -D; echo $_comps[{program}]; autoload -Uz +X _{program}",
            zsh.display()
        );
        assert_eq!(good(Command::new("zsh").args(["-f", "-c", &script])), format!("_{program}\n"));
        let fish = package.path("usr/share/fish/vendor_completions.d").join(format!("{program}.fish"));
        let script = format!("source {}; complete -C '{before} {begin}'", fish.display());
        let report = good(Command::new("fish").args(["--no-config", "-c", &script]));
        assert!(report.starts_with(&format!("{whole}\t")), "{report}");
    }
}

#[test]
#[ignore = "needs the programs built, and Debian's tools"]
fn systemd_takes_the_units_and_finds_their_exposure_low() {
    let said = judged("sctpifyd.service", "38");
    assert!(said.contains("ExecStop=/usr/sbin/sctpify down --drain"), "{said}");
    judged("sctpify-sip.service", "25");
}

/// Returns the text of a unit. Checks that systemd finds no fault in the unit, and that the unit's security exposure does not exceed
/// `exposure_tenths_max`, in tenths.
fn judged(name: &str, exposure_tenths_max: &str) -> String {
    let package = &*PACKAGE;
    let text = fs::read_to_string(package.path("usr/lib/systemd/system").join(name)).unwrap();
    // The unit's programs are not installed on this host, so use the programs of the unpacked package.
    let unit = package.tree.with_file_name(name);
    fs::write(&unit, text.replace("/usr/sbin", &package.path("usr/sbin").display().to_string())).unwrap();
    let mut verify = Command::new("systemd-analyze");
    verify.args(["verify", "--man=no", "--recursive-errors=no"]).arg(&unit);
    let output = verify.output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let limit = format!("--threshold={exposure_tenths_max}");
    good(
        Command::new("systemd-analyze").args(["security", "--no-pager", "--offline=true", &limit]).arg(&unit),
    );
    text
}

#[test]
#[ignore = "needs the programs built, and the tools of Debian and RPM"]
fn the_files_of_a_release_have_their_checksums_and_install_programs_that_run() {
    let dir = empty("release");
    let printed = good(&mut make("release", &dir));
    let files: Vec<&Path> = printed.lines().map(Path::new).collect();
    let of_kind =
        |kind: &str| *files.iter().find(|file| file.extension().is_some_and(|e| e == kind)).unwrap();
    let made = dir.join("release-files");
    good(Command::new("sha256sum").args(["--check", "--strict", "SHA256SUMS"]).current_dir(&made));
    assert_eq!(fs::read_dir(&made).unwrap().count(), files.len(), "nothing else: {files:?}");

    // In some distributions, `/usr/sbin` is a link to `bin`.
    let tree = dir.join("rpm");
    fs::create_dir_all(tree.join("usr/bin")).unwrap();
    std::os::unix::fs::symlink("bin", tree.join("usr/sbin")).unwrap();
    let mut install = Command::new("rpm");
    install.arg("--root").arg(&tree).args(["--install", "--nodeps", "--noscripts"]).arg(of_kind("rpm"));
    good(&mut install);
    let unit = fs::read_to_string(tree.join("usr/lib/systemd/system/sctpifyd.service")).unwrap();
    assert!(unit.contains("ExecStart=/usr/bin/sctpifyd\n"), "{unit}");
    for file in
        ["lib/sctpify/libsctpify.so", "lib/sysusers.d/sctpify.conf", "share/licenses/sctpify/LICENSE-MIT"]
    {
        assert!(tree.join("usr").join(file).is_file(), "{file}");
    }
    let scripts = good(Command::new("rpm").args(["--query", "--scripts", "--package"]).arg(of_kind("rpm")));
    let shell: Vec<&str> =
        scripts.lines().filter(|line| !line.contains("scriptlet (using /bin/sh)")).collect();
    assert_eq!(scripts.lines().count() - shell.len(), 3);
    good(Command::new("sh").args(["-n", "-c", &shell.join("\n")]));

    let unpacked = dir.join("local");
    fs::create_dir_all(unpacked.join("bin")).unwrap();
    fs::set_permissions(unpacked.join("bin"), fs::Permissions::from_mode(0o2775)).unwrap();
    let words = ["--strip-components", "1", "--directory"];
    good(Command::new("tar").arg("-xzf").arg(of_kind("gz")).args(words).arg(&unpacked));
    let mode = fs::metadata(unpacked.join("bin")).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o2775, "an existing directory keeps its mode");
    let unit = fs::read_to_string(unpacked.join("lib/systemd/system/sctpifyd.service")).unwrap();
    assert!(unit.contains("ExecStart=/usr/local/bin/sctpifyd\n") && !unit.contains("/usr/sbin"), "{unit}");
    for program in [tree.join("usr/bin/sctpify"), unpacked.join("bin/sctpify")] {
        let version = good(Command::new(&program).arg("--version"));
        assert!(version.starts_with("sctpify "), "{version}");
        // The program finds the library that the package has.
        let run = ["run", "--sctp", "--", "/bin/true"];
        good(Command::new(&program).args(run).env("XDG_RUNTIME_DIR", &dir));
    }
}
