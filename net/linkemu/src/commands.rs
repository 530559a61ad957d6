//! Implementation of the commands. A background link runs in a separate process, which executes the same program. The command `add`
//! starts this process, and waits until the link works.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command as Program, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::args::{Command, Ends, Linkemu, RunArgs, Settings, Wishes};
use crate::control::{self, Served};
use crate::emulator::Emulator;
use crate::error::LinkemuError;
use crate::plan::{Plan, check_name, read_file};
use crate::report::{Report, Request};
use crate::show;
use bridge::LinkEnd;

/// Line that a link's process prints on standard output when the link works.
const READY: &str = "ready";

/// Runs the command of the command line.
///
/// # Errors
/// The command's error.
pub fn run(args: Linkemu) -> Result<(), LinkemuError> {
    let Linkemu { dir, json, command } = args;
    match command {
        Command::Add(Ends { a, b, wishes }) => add(&dir, json, plan(a, b, wishes)?),
        Command::Run(run) => foreground(&dir, plans(run)?),
        Command::Set { name, settings } => {
            let Settings { both, ab, ba } = settings;
            print(&[ask(&dir, &name, &Request::Set { both, ab, ba })?], json)
        }
        Command::Show { name: Some(name) } => print(&[ask(&dir, &name, &Request::Show)?], json),
        Command::Show { name: None } => show_all(&dir, json),
        Command::Del { names, all } => {
            let names = if all { living(&dir)? } else { names };
            names.iter().try_for_each(|name| ask(&dir, name, &Request::Stop).map(drop))
        }
        Command::Serve { plan } => serve(&dir, &plan),
        Command::Docs(docs) => {
            Ok(docs.run(vec![<Linkemu as clap::CommandFactory>::command()], &[], &mut std::io::stdout())?)
        }
    }
}

fn plan(a: LinkEnd, b: LinkEnd, wishes: Wishes) -> Result<Plan, LinkemuError> {
    let Wishes { name, seed, settings: Settings { both, ab, ba } } = wishes;
    let plan = Plan { name: name.unwrap_or_default(), a, b, seed, ab, ba, both }.named()?;
    plan.configs()?;
    Ok(plan)
}

/// Returns the links of the file. Without a file, returns the one link of the command line. Settings and the seed on the command
/// line override settings and seeds in the file.
fn plans(run: RunArgs) -> Result<Vec<Plan>, LinkemuError> {
    let RunArgs { file, ends, wishes } = run;
    let Some(file) = file else {
        let mut ends = ends.into_iter();
        let (Some(a), Some(b)) = (ends.next(), ends.next()) else {
            return Err(bridge::BridgeError::LinkEnd { text: String::new() }.into());
        };
        return Ok(vec![plan(a, b, wishes)?]);
    };
    let Settings { both, ab, ba } = wishes.settings;
    let over = |plan: Plan| {
        let plan = Plan {
            ab: plan.ab.with(&both).with(&ab),
            ba: plan.ba.with(&both).with(&ba),
            seed: wishes.seed.or(plan.seed),
            ..plan
        };
        plan.configs().map(|_| plan)
    };
    read_file(&file)?.into_iter().map(over).collect()
}

fn ask(dir: &Path, name: &str, request: &Request) -> Result<Report, LinkemuError> {
    check_name(name)?;
    control::ask(dir, name, request)
}

/// Returns the names of the running links. Prints a line on standard error for each link whose process was killed.
fn living(dir: &Path) -> Result<Vec<String>, LinkemuError> {
    let (living, dead) = control::names(dir)?;
    for name in dead {
        eprintln!("linkemu: link {name}: its process was killed; its interfaces are unchanged");
    }
    Ok(living)
}

fn show_all(dir: &Path, json: bool) -> Result<(), LinkemuError> {
    let names = living(dir)?;
    let reports: Vec<Report> =
        names.iter().map(|name| ask(dir, name, &Request::Show)).collect::<Result<_, _>>()?;
    if reports.is_empty() && !json {
        eprintln!("no links");
    }
    print(&reports, json)
}

fn print(reports: &[Report], json: bool) -> Result<(), LinkemuError> {
    let mut out = std::io::stdout().lock();
    for report in reports {
        let text =
            if json { serde_json::to_string(report).unwrap_or_default() + "\n" } else { show::text(report) };
        out.write_all(text.as_bytes()).map_err(LinkemuError::system("write to standard output"))?;
    }
    Ok(())
}

/// Starts the link's process, waits until the link works, and prints its report.
///
/// # Errors
/// The message of the link's process, if the link cannot start.
fn add(dir: &Path, json: bool, plan: Plan) -> Result<(), LinkemuError> {
    let program = std::env::current_exe().map_err(LinkemuError::system("find this program's executable"))?;
    let words = serde_json::to_string(&plan).unwrap_or_default();
    let mut child = Program::new(program)
        .arg("--dir")
        .arg(std::path::absolute(dir).map_err(LinkemuError::file(dir))?)
        .args(["serve", &words])
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(LinkemuError::system("start the link's process"))?;
    let mut said = String::new();
    if let Some(out) = child.stdout.take() {
        // If the process ends, it closes this pipe, and the read returns. If the link could not start, the error message is on
        // the pipe of standard error.
        let _ = BufReader::new(out).read_line(&mut said);
    }
    if said.trim() == READY {
        return print(&[ask(dir, &plan.name, &Request::Show)?], json);
    }
    let mut problem = String::new();
    if let Some(mut errors) = child.stderr.take() {
        let _ = errors.read_to_string(&mut problem);
    }
    let problem = problem.trim().trim_start_matches("linkemu: ").to_owned();
    Err(LinkemuError::Refused { name: plan.name, problem })
}

/// Runs a link in this process, after [`add`] has started the process. When the link works, the process leaves its session and
/// closes its standard output and standard error.
fn serve(dir: &Path, plan: &str) -> Result<(), LinkemuError> {
    let plan: Plan = serde_json::from_str(plan)
        .map_err(|error| LinkemuError::Refused { name: "?".to_owned(), problem: error.to_string() })?;
    let stop = stop_on_signals()?;
    let (mut emulator, served) = open(dir, plan)?;
    nix::unistd::setsid().map_err(LinkemuError::system("detach from the session"))?;
    println!("{READY}");
    let null = std::fs::File::options().write(true).open("/dev/null");
    let null = null.map_err(LinkemuError::system("open /dev/null"))?;
    nix::unistd::dup2_stdout(&null).map_err(LinkemuError::system("detach from standard output"))?;
    nix::unistd::dup2_stderr(&null).map_err(LinkemuError::system("detach from standard error"))?;
    emulator.run(&stop, served)
}

fn open(dir: &Path, plan: Plan) -> Result<(Emulator, Served), LinkemuError> {
    let name = plan.name.clone();
    let emulator = Emulator::open(plan)?;
    Ok((emulator, control::serve(dir, &name)?))
}

/// Returns a flag that SIGTERM or SIGINT sets.
fn stop_on_signals() -> Result<Arc<AtomicBool>, LinkemuError> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
        let registered = signal_hook::flag::register(signal, Arc::clone(&stop));
        registered.map_err(LinkemuError::system("wait for signals"))?;
    }
    Ok(stop)
}

/// Runs each link in a separate thread. When all links have ended, prints the last report of each link.
fn foreground(dir: &Path, plans: Vec<Plan>) -> Result<(), LinkemuError> {
    let stop = stop_on_signals()?;
    let links: Vec<_> = plans.into_iter().map(|plan| open(dir, plan)).collect::<Result<_, _>>()?;
    println!("{READY}");
    let outcomes = std::thread::scope(|scope| {
        let threads: Vec<_> = links
            .into_iter()
            .map(|(mut emulator, served)| {
                let stop = &stop;
                scope.spawn(move || {
                    let outcome = emulator.run(stop, served);
                    (emulator.last_report(), outcome)
                })
            })
            .collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).collect::<Vec<_>>()
    });
    let (reports, outcomes): (Vec<Report>, Vec<_>) = outcomes.into_iter().unzip();
    print(&reports, false)?;
    outcomes.into_iter().collect()
}
