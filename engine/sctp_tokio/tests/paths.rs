//! Two hosts with two links, one of which fails.

use std::process::Command;
use std::time::Duration;

use sctp_tokio::{Error, Stack, StackConfig};
use testbed::{Host, Lab, Offloads};

const LIMIT: Duration = Duration::from_secs(60);

/// Returns a command that runs the example `echo` on a host.
fn echo(host: &Host, words: &[&str]) -> Command {
    // Test programs are in target/…/deps, and examples are in target/…/examples.
    let test = std::env::current_exe().unwrap();
    let mut command = host.command(test.parent().unwrap().with_file_name("examples").join("echo"));
    command.args(words);
    command
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn the_example_goes_on_when_its_first_link_dies() {
    let lab = Lab::new().unwrap();
    let (alpha, beta) = (lab.host("alpha").unwrap(), lab.host("beta").unwrap());
    let links = [1, 2].map(|number| lab.join(&alpha, &beta, number, Offloads::Off).unwrap());
    let mut server = beta.spawn("server", echo(&beta, &["serve", "7000"])).unwrap();
    server.wait_until("listening", LIMIT, |process| process.stdout().contains("listening")).unwrap();
    let to = format!("{}:7000", links[0].right_v4());
    // The client sends one line every 20 ms.
    let lines = "import subprocess, sys, time
client = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, text=True)
for number in range(300):
    print(f'line {number}', file=client.stdin, flush=True); time.sleep(0.02)
client.stdin.close(); sys.exit(client.wait())";
    let ask = echo(&alpha, &["ask", &to]);
    let mut command = alpha.command("python3");
    let words: Vec<_> = ask.get_args().collect();
    let program = words.iter().position(|word| word.to_string_lossy().ends_with("/echo")).unwrap();
    command.args(["-c", lines]).args(&words[program..]);
    let mut client = alpha.spawn("client", command).unwrap();
    client.wait_until("answers", LIMIT, |process| process.stdout().contains("line 50\n")).unwrap();
    links[0].silence().unwrap();
    let told = client.finish(LIMIT).unwrap().good().unwrap().stdout;
    let answers: Vec<_> = told.lines().filter(|line| line.starts_with("line ")).collect();
    let expected: Vec<_> = (0..300).map(|number| format!("line {number}")).collect();
    assert_eq!(answers, expected, "each line comes back once, in order");
    assert!(told.contains("PathSwitched"), "{told}");
}

#[test]
#[ignore = "needs root: opens raw sockets"]
fn over_ip_two_stacks_share_the_ports_of_the_host() {
    let test = || {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let over_ip = StackConfig { udp_port: None, over_ip: true, ..StackConfig::default() };
            let (one, other) = (Stack::open(over_ip.clone()).unwrap(), Stack::open(over_ip).unwrap());
            let listener = one.listen(7).unwrap();
            assert!(matches!(other.listen(7), Err(Error::PortInUse(7))));
            drop(listener);
            other.listen(7).unwrap();
        });
    };
    std::thread::spawn(test).join().unwrap();
}
