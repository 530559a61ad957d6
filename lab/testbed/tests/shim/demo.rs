//! Tests of `sctpify demo`.

use std::fs::{self, File};
use std::process::{Child, Command, ExitStatus};
use std::thread;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;
use testbed::Programs;
use testbed::process::wait_for;

use crate::world::LIMIT;

/// A demo, with a directory for temporary files of its own.
struct Demo {
    child: Child,
    /// Has the demo's output, and the directory for temporary files.
    dir: TempDir,
}

impl Demo {
    fn start() -> Demo {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("tmp")).unwrap();
        let mut command = Command::new(Programs::find().unwrap().path("sctpify"));
        command.arg("demo").env("TMPDIR", dir.path().join("tmp"));
        command.stdout(File::create(dir.path().join("out")).unwrap());
        command.stderr(File::create(dir.path().join("err")).unwrap());
        Demo { child: command.spawn().unwrap(), dir }
    }

    fn wait(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    fn output(&self) -> String {
        fs::read_to_string(self.dir.path().join("out")).unwrap()
    }

    fn error(&self) -> String {
        fs::read_to_string(self.dir.path().join("err")).unwrap()
    }

    /// Returns the number of files that the demo has left.
    fn files_left(&self) -> usize {
        fs::read_dir(self.dir.path().join("tmp")).unwrap().count()
    }

    /// Reports whether a process runs with one of the demo's files among its arguments.
    fn has_process(&self) -> bool {
        let own = self.dir.path().to_string_lossy();
        let lines = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path().join("cmdline"));
        lines
            .filter_map(|path| fs::read(path).ok())
            .any(|line| String::from_utf8_lossy(&line).contains(&*own))
    }

    /// Ends the demo by a signal once its output contains this text.
    fn end_by(&mut self, signal: Signal, text: &str) -> ExitStatus {
        assert!(wait_for(LIMIT, || self.output().contains(text) || self.error().contains("error")));
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).unwrap();
        self.wait()
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn two_demos_at_once_survive_the_pulled_cable_and_leave_nothing() {
    let mut demos = [Demo::start(), Demo::start()];
    for demo in &mut demos {
        let status = demo.wait();
        let output = demo.output();
        assert!(status.success(), "{output} {}", demo.error());
        let (_, pulled) = output.split_once("is pulled").unwrap();
        assert!(pulled.contains("eth1 DOWN\n  eth2 up, carries the data"), "{output}");
        assert!(output.contains("numbers came back in order, on one connection, over SCTP"), "{output}");
        assert!(!demo.has_process());
        assert_eq!(demo.files_left(), 0);
    }
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn an_interrupted_demo_ends_its_daemons_and_removes_its_files() {
    let cases =
        [(Signal::SIGINT, "(eth2)"), (Signal::SIGHUP, "is pulled"), (Signal::SIGTERM, "runs on both")];
    let ended = cases.map(|(signal, text)| {
        thread::spawn(move || {
            let mut demo = Demo::start();
            let status = demo.end_by(signal, text);
            assert_eq!((status.code(), &*demo.error()), (Some(1), "error: interrupted\n"), "{signal}");
            assert!(!demo.has_process(), "{signal}");
            assert_eq!(demo.files_left(), 0, "{signal}");
        })
    });
    ended.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn the_daemons_of_a_killed_demo_end() {
    let mut demo = Demo::start();
    demo.end_by(Signal::SIGKILL, "is pulled");
    assert!(wait_for(LIMIT, || !demo.has_process()), "the daemons run on");
}
