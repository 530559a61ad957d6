//! Two hosts, alpha and beta, as unnamed network namespaces joined by a veth pair. Helpers to run programs and to wait.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::process::{Command, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

use intercept::{Arrival, Config, HeldSyn, Interceptor, Namespace, SetUpError, Verdict};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use socket2::{Domain, Socket, Type};

/// Limit on the time that a test waits for an event.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

pub(crate) const ALPHA4: &str = "10.71.0.1";
pub(crate) const BETA4: &str = "10.71.0.2";
pub(crate) const ALPHA6: &str = "2001:db8:71::1";
pub(crate) const BETA6: &str = "2001:db8:71::2";

/// The two hosts, with all their contents. `Drop` removes them.
pub(crate) struct World {
    pub(crate) alpha: Namespace,
    pub(crate) beta: Namespace,
}

impl World {
    pub(crate) fn new() -> World {
        let world = World {
            alpha: Namespace::create().expect("a namespace"),
            beta: Namespace::create().expect("a namespace"),
        };
        let beta_thread = world.beta.run(|| nix::unistd::gettid().to_string()).expect("its thread");
        run_ip(
            &world.alpha,
            &["link", "add", "path0", "type", "veth", "peer", "name", "path0", "netns", &beta_thread],
        );
        for (host, v4, v6) in [(&world.alpha, ALPHA4, ALPHA6), (&world.beta, BETA4, BETA6)] {
            run_ip(host, &["link", "set", "lo", "up"]);
            // The kernel would add link-local addresses later, and snapshots of the state would differ. So `addrgenmode none`
            // prevents these addresses.
            run_ip(host, &["link", "set", "path0", "addrgenmode", "none", "up"]);
            run_ip(host, &["addr", "add", &format!("{v4}/24"), "dev", "path0"]);
            run_ip(host, &["addr", "add", &format!("{v6}/64"), "dev", "path0", "nodad"]);
        }
        for (host, v6) in [(&world.alpha, ALPHA6), (&world.beta, BETA6)] {
            wait_until("the path has a carrier and all its routes", || {
                let link = run_ip(host, &["-br", "link", "show", "path0"]);
                let routes = run_ip(host, &["route", "show", "table", "all"]);
                link.contains(" UP ")
                    && !routes.contains("linkdown")
                    && routes.contains(&format!("local {v6} "))
            });
        }
        world
    }

    /// Sets up an interceptor in alpha with the default configuration.
    pub(crate) fn intercept_alpha(&self) -> Interceptor {
        intercept(&self.alpha, Config::default())
    }
}

pub(crate) fn intercept(host: &Namespace, config: Config) -> Interceptor {
    try_intercept(host, config).expect("an interceptor")
}

pub(crate) fn try_intercept(host: &Namespace, config: Config) -> Result<Interceptor, SetUpError> {
    host.run(move || Interceptor::set_up(&config)).expect("the namespace's thread")
}

/// Runs `ip` in `host` and returns its output.
pub(crate) fn run_ip(host: &Namespace, arguments: &[&str]) -> String {
    run_program(host, "ip", arguments)
}

/// Reports whether a connection of `host` had to retransmit anything, including its SYN.
pub(crate) fn has_retransmitted(host: &Namespace, connection: &TcpStream) -> bool {
    let local = connection.local_addr().expect("an address");
    let sockets = run_program(host, "ss", &["-tin", "sport", "=", &format!(":{}", local.port())]);
    assert!(sockets.contains("rto:"), "no connection in {sockets}");
    sockets.contains("retrans:")
}

/// Runs a program in `host` and returns its output. Panics if the program fails.
pub(crate) fn run_program(host: &Namespace, program: &'static str, arguments: &[&str]) -> String {
    let arguments: Vec<String> = arguments.iter().map(|&argument| argument.to_owned()).collect();
    let shown = arguments.join(" ");
    let output = host
        .run(move || Command::new(program).args(arguments).stderr(Stdio::inherit()).output())
        .expect("the namespace's thread")
        .expect("iproute2 is installed");
    assert!(output.status.success(), "{program} {shown} failed");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Returns the index of an interface of `host`.
pub(crate) fn index(host: &Namespace, name: &'static str) -> u32 {
    host.run(move || nix::net::if_::if_nametoindex(name)).expect("the namespace's thread").expect("its index")
}

/// Opens a listener of an ordinary program in `host`.
pub(crate) fn listen(host: &Namespace, address: &str) -> TcpListener {
    let address = resolve(address);
    host.run(move || TcpListener::bind(address)).expect("the namespace's thread").expect("a listener")
}

/// Returns the socket address of `ip` and `port`.
pub(crate) fn at(ip: &str, port: u16) -> SocketAddr {
    SocketAddr::new(ip.parse().expect("an address"), port)
}

fn resolve(text: &str) -> SocketAddr {
    text.parse().expect("an address and port")
}

/// Creates a socket in `host` for a connection to `server`, as an ordinary program would.
pub(crate) fn client_socket(host: &Namespace, server: SocketAddr) -> Socket {
    host.run(move || Socket::new(Domain::for_address(server), Type::STREAM, None))
        .expect("the namespace's thread")
        .expect("a socket")
}

/// Connects an ordinary blocking client in `host` to `server`, on a separate thread.
pub(crate) fn connect(host: &Namespace, server: SocketAddr) -> JoinHandle<io::Result<TcpStream>> {
    let socket = client_socket(host, server);
    std::thread::spawn(move || socket.connect(&server.into()).map(|()| TcpStream::from(socket)))
}

/// Creates a client in `host` that begins to connect to `server` without waiting.
pub(crate) fn begin(host: &Namespace, server: SocketAddr) -> Socket {
    let socket = client_socket(host, server);
    begin_with(&socket, server);
    socket
}

/// Begins to connect `socket` to `server` without waiting.
pub(crate) fn begin_with(socket: &Socket, server: SocketAddr) {
    socket.set_nonblocking(true).expect("a non-blocking socket");
    let error = socket.connect(&server.into()).expect_err("no connection yet");
    assert_eq!(error.raw_os_error(), Some(libc::EINPROGRESS));
}

/// Waits until `is_so` returns true. Panics after [`PATIENCE`].
pub(crate) fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    const STEP: Duration = Duration::from_millis(10);
    for _ in 0..PATIENCE.div_duration_f32(STEP) as u32 {
        if is_so() {
            return;
        }
        std::thread::sleep(STEP);
    }
    panic!("not within {PATIENCE:?}: {what}");
}

/// Waits until a client is connected, and returns its connection.
pub(crate) fn connected(client: JoinHandle<io::Result<TcpStream>>) -> TcpStream {
    client.join().expect("a client that does not panic").expect("a connection")
}

/// Waits until `descriptor` is ready. Returns false after the timeout.
pub(crate) fn wait(descriptor: BorrowedFd<'_>, what: PollFlags, patience: Duration) -> bool {
    let mut descriptors = [PollFd::new(descriptor, what)];
    let timeout = PollTimeout::try_from(patience).expect("a time that poll can wait");
    poll(&mut descriptors, timeout).expect("poll") == 1
}

/// Returns the next held SYN, or None if no SYN comes in time.
pub(crate) fn held_within(interceptor: &mut Interceptor, patience: Duration) -> Option<HeldSyn> {
    let queue = interceptor.queue();
    match queue.recv().expect("the queue") {
        Some(syn) => Some(syn),
        None if wait(queue.as_fd(), PollFlags::POLLIN, patience) => queue.recv().expect("the queue"),
        None => None,
    }
}

/// Returns the next held SYN.
pub(crate) fn held(interceptor: &mut Interceptor) -> HeldSyn {
    held_within(interceptor, PATIENCE).expect("a held SYN")
}

/// Returns the next diverted connection that arrives.
pub(crate) fn arrival(interceptor: &mut Interceptor, ipv6: bool) -> Arrival {
    let listener = &interceptor.listeners()[usize::from(ipv6)];
    assert!(wait(listener.as_fd(), PollFlags::POLLIN, PATIENCE), "no diverted connection arrived");
    listener.accept().expect("accept").expect("an arrival")
}

/// Diverts a held SYN and returns its arrival.
pub(crate) fn divert(interceptor: &mut Interceptor, syn: &HeldSyn) -> Arrival {
    interceptor.queue().verdict(syn.id, Verdict::Divert).expect("a verdict");
    let arrival = arrival(interceptor, !syn.flow.is_ipv4());
    assert_eq!(arrival.flow, syn.flow);
    arrival
}
