//! Runs the worker process: creates its parts, connects them and runs the event loop.

use std::fs::File;
use std::io::{IsTerminal, Read};
use std::panic::AssertUnwindSafe;
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use control::{Check, DaemonArgs, Level, Measure};
use intercept::{Config, Interceptor};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use ops::Page;
use rules::Settings;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tracing_subscriber::EnvFilter;

use crate::archive::{self, Archive, Listener, Signer};
use crate::carriers::PacketIo;
use crate::commands::{Command, Handle};
use crate::confinement::{self, Confinement, Identity};
use crate::control_server::{ControlServer, ControlSocket, Desk, Kept};
use crate::encryption::{Encryption, Handshakes, warm_up};
use crate::forwarding::{Forwarder, Names};
use crate::learned_store::LearnedStore;
use crate::link_history::LinkHistoryStore;
use crate::page;
use crate::peers_store::PeersStore;
use crate::rules_store::RulesStore;
use crate::shard::Shard;
use crate::shared_store::SharedStore;
use crate::supervisor;
use crate::traffic_keeper::TrafficKeeper;

/// Begins logging to standard error.
pub(crate) fn start_log(args: &DaemonArgs) -> Result<()> {
    let filter = EnvFilter::try_new(&args.log).context("--log: not a filter")?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_target(false)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
    Ok(())
}

/// Runs the worker until a signal or a request stops it.
pub(crate) fn run(args: &DaemonArgs) -> Result<ExitCode> {
    start_log(args)?;
    let has_supervisor = supervisor::is_worker();
    let signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).context("cannot catch signals")?;
    raise_descriptor_limit();
    keep_freed_memory();
    let (archive, listener) = open_archive(args, has_supervisor)?;
    let rules = RulesStore::load(args, archive.clone())?;
    let signer = archive.signer(args);
    let peers = PeersStore::load(args, &rules.settings(), archive.clone())?;
    let (encryption, handshakes) = Encryption::new(peers.clone());
    if rules.settings().encryption.is_offered() {
        prepare_encryption(&signer)?;
    }
    let traffic = TrafficKeeper::load(args, archive.clone());
    let history = LinkHistoryStore::load(args, archive.clone());
    let learned = LearnedStore::load(args, archive);
    let identity = Identity::of_worker(&rules.settings(), args, has_supervisor)?;
    let packet_io = PacketIo::new(&rules.settings(), args.inside.is_some());
    netio::keep_filters_readable();
    let mut interceptor = set_up(args, &rules.settings())?;
    let datagrams = interceptor.take_datagrams();
    let socket = ControlSocket::bind(&args.control)?;
    let shared = SharedStore::of_settings(&rules.settings())?;
    let names = Names::of_host();
    // Read the token before the switch of users, because the worker's later user may not be allowed to read it.
    let metrics = control::bind_metrics(&rules.settings());
    let user = assume(&interceptor, &identity)?;
    let (mut shard, handle) = Shard::new(
        interceptor,
        packet_io,
        rules.clone(),
        learned.clone(),
        encryption,
        seed()?,
        has_supervisor,
    )?;
    let page = control::bind_page(rules.settings().page_port);
    let kept = Kept {
        rules: rules.clone(),
        learned: learned.clone(),
        peers: peers.clone(),
        history: history.clone(),
        signer: signer.clone(),
    };
    let server = ControlServer::new(socket, kept, handle.clone());
    let desk = server.desk();
    let confinement = Confinement::of_worker(&rules.settings(), args, has_supervisor);
    let confined = confine(shard.interceptor(), &confinement)?;
    shard.note_confinement(control::Confinement { user, ..confined });
    spawn("control", move || server.run())?;
    spawn_listeners(page, metrics, &desk, &rules, &mut shard)?;
    spawn_handshakes(handshakes, signer, handle.clone())?;
    spawn_keepers(learned.clone(), shared, peers.clone())?;
    spawn_traffic_keeper(traffic, rules.clone(), handle.clone())?;
    spawn_history_keeper(history.clone(), handle.clone())?;
    let on_signal = handle.clone();
    spawn("signals", move || obey_signals(signals, &rules, &on_signal))?;
    if args.inside.is_some() {
        shard.serve_command(Forwarder::start(names, datagrams, handle.clone())?);
    }
    spawn_supervision(listener, args.inside.is_some(), handle)?;
    tracing::info!(control = %args.control.display(), "sctpifyd is up");
    let outcome = shard.run();
    if let Ok(readings) = &outcome {
        history.note(readings);
    }
    history.save();
    learned.save();
    // `save` logs a failure.
    let _ = peers.save();
    if !has_supervisor {
        // Remove the socket's file, because no client should wait for a daemon that has gone.
        let _ = std::fs::remove_file(&args.control);
    }
    outcome.map(|_| ExitCode::SUCCESS)
}

/// Opens the files, through the supervisor or directly. The listener notices when the supervisor exits; the listener is `None`
/// without a supervisor.
fn open_archive(args: &DaemonArgs, has_supervisor: bool) -> Result<(Archive, Option<Listener>)> {
    if has_supervisor {
        let (archive, listener) = Archive::of_supervisor()?;
        return Ok((archive, Some(listener)));
    }
    archive::prepare_directories(args)?;
    Ok((Archive::own(args), None))
}

/// Starts the thread of the status page, and the thread of the metrics for other hosts. If a listener is not available, the
/// daemon runs without it, and the log and `doctor` report the fault.
fn spawn_listeners(
    page: Result<Option<Page>, String>,
    metrics: Result<Option<Page>, String>,
    desk: &Desk,
    rules: &RulesStore,
    shard: &mut Shard,
) -> Result<()> {
    let mut note = |name, fault: String, remedy: &str| {
        tracing::warn!("{fault}");
        shard.note_fault(Check::bad(name, Level::Warning, fault, remedy));
    };
    match page {
        Ok(None) => {}
        Ok(Some(page)) => {
            let desk = desk.clone();
            spawn("page", move || page::run(page, desk))?;
        }
        Err(fault) => {
            rules.goes_without_page();
            note("page", fault, "sctpify set page_port=PORT, 0 for no page; then restart sctpifyd");
        }
    }
    match metrics {
        Ok(None) => {}
        Ok(Some(listener)) => {
            let desk = desk.clone();
            spawn("metrics", move || page::run_metrics(listener, desk))?;
        }
        Err(fault) => {
            rules.goes_without_metrics_listener();
            let remedy = "sctpify set metrics_listen=ADDRESS:PORT metrics_token=FILE, or metrics_listen= for none; then \
                          restart sctpifyd";
            note("metrics", fault, remedy);
        }
    }
    Ok(())
}

/// Starts a thread that stops this process when its parent ends. The parent is the supervisor, or the command `sctpify run`
/// that started this process.
fn spawn_supervision(listener: Option<Listener>, is_inside: bool, shard: Handle) -> Result<()> {
    match listener {
        Some(listener) => spawn("supervision", move || stop_after(|| listener.run(), &shard)),
        None if is_inside => spawn("supervision", move || stop_after(wait_for_the_end_of_input, &shard)),
        None => Ok(()),
    }
}

/// Starts the two threads that write the file of learned destinations and the file of known peers.
fn spawn_keepers(learned: LearnedStore, shared: Option<SharedStore>, peers: PeersStore) -> Result<()> {
    spawn("learned table", move || learned.keep(shared))?;
    spawn("known peers", move || peers.keep())
}

/// Starts the thread that compares the traffic of links with their caps.
fn spawn_traffic_keeper(traffic: TrafficKeeper, rules: RulesStore, shard: Handle) -> Result<()> {
    spawn("traffic of links", move || traffic.keep(&rules, &shard))
}

/// Starts the thread that reads the counts of links for their history.
fn spawn_history_keeper(history: LinkHistoryStore, shard: Handle) -> Result<()> {
    spawn("history of links", move || history.keep(&shard))
}

/// Starts the thread of the key handshakes. Without this thread, no association gets keys, so the process aborts if the thread
/// fails. The supervisor then cleans up and exits with an error.
fn spawn_handshakes(handshakes: Handshakes, signer: Signer, shard: Handle) -> Result<()> {
    spawn("handshakes", move || {
        let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| handshakes.run(&signer, &shard)));
        if outcome.is_err() {
            tracing::error!("the thread of the key handshakes has failed");
            std::process::abort();
        }
    })
}

/// Sets up the cryptographic library before this process is confined. Fails without a host key, because a daemon with
/// encryption must not start without a key.
fn prepare_encryption(signer: &Signer) -> Result<()> {
    if let Signer::Lacking(error) = signer {
        bail!("no host key, and the setting encryption needs it: {error}");
    }
    warm_up().context("the cryptographic library does not work")
}

/// Switches the two existing threads to the user that the settings name. Later threads inherit this user, and files that they
/// create belong to it.
fn assume(interceptor: &Interceptor, identity: &Identity) -> Result<Measure> {
    let inside = identity.clone();
    let inside = interceptor.run_inside(move || inside.assume()).context("cannot reach a thread")?;
    let outside = identity.assume();
    ensure!(inside == outside, "two threads of one process run as different users: {inside}; {outside}");
    confinement::log_user(&outside);
    Ok(outside)
}

/// Gives up unneeded privileges in the two existing threads. A daemon for one command is confined, too, but it writes the
/// daemon's files itself. Its capabilities are valid only in its own namespaces.
fn confine(interceptor: &Interceptor, confinement: &Confinement) -> Result<control::Confinement> {
    let inside = confinement.clone();
    let inside = interceptor.run_inside(move || inside.apply()).context("cannot confine a thread")?;
    confinement::log("private namespace", &inside);
    let confined = confinement.apply();
    confinement::log("worker", &confined);
    Ok(confined)
}

/// Sets up the interception of the connections of this host's programs, or of one command in its enclosed namespace.
fn set_up(args: &DaemonArgs, settings: &Settings) -> Result<Interceptor> {
    let Some(path) = &args.inside else {
        let config = Config { loopback: settings.loopback, ..Config::default() };
        return Ok(Interceptor::set_up(&config)?);
    };
    // `sctpify run` signals when it has created the namespace.
    std::io::stdin().read_exact(&mut [0]).context("the namespace was not created")?;
    let namespace = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    Ok(Interceptor::enclose(&namespace, &Config::default())?)
}

/// Raises the soft limit on descriptors to the hard limit, because each connection needs a descriptor. The usual soft limit of
/// 1,024 exists for programs that use select(2).
fn raise_descriptor_limit() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(_, hard)| setrlimit(Resource::RLIMIT_NOFILE, hard, hard));
    if let Err(error) = raised {
        tracing::warn!(%error, "cannot raise the limit of open files: many connections will be plain TCP");
    }
}

/// Makes glibc keep freed memory, because megabytes of payloads are allocated and freed all the time. By default, glibc returns
/// freed memory to the kernel, which must then map it again page by page. After glibc has freed a block of `BLOCK` bytes, it
/// keeps up to twice as much free memory (mallopt(3), M_TRIM_THRESHOLD).
fn keep_freed_memory() {
    const BLOCK: usize = 16 << 20;
    drop(std::hint::black_box(vec![0u8; BLOCK]));
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> Result<()> {
    std::thread::Builder::new().name(name.to_owned()).spawn(body).context("cannot start a thread")?;
    Ok(())
}

fn obey_signals(mut signals: Signals, rules: &RulesStore, shard: &Handle) {
    for signal in signals.forever() {
        if signal != SIGHUP {
            shard.send(Command::Stop);
        } else if let Err(error) = rules.reload(shard) {
            tracing::error!(?error, "reload failed; keeping the current configuration");
        }
    }
}

/// Stops this process when its parent process has ended. `wait` returns at that end.
fn stop_after(wait: impl FnOnce(), shard: &Handle) {
    wait();
    tracing::info!("the parent process has gone: stopping");
    shard.send(Command::Stop);
}

fn wait_for_the_end_of_input() {
    let mut nothing = [0; 64];
    while std::io::stdin().read(&mut nothing).is_ok_and(|length| length > 0) {}
}

/// Reads the seed of the engine's random numbers. The engine has no other source of randomness.
fn seed() -> Result<[u8; 32]> {
    let mut seed = [0; 32];
    File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut seed)).context("no randomness")?;
    Ok(seed)
}
