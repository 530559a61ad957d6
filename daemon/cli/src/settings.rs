//! Shows settings, and changes them through the daemon or in the configuration file.

use std::path::{Path, PathBuf};

use control::{
    DEFAULT_CONFIG, Done, Request, Response, SettingsReport, default_config_text, load_config, print_config,
    save_setting, try_setting, udp_port_problem,
};
use rules::{Setting, Settings, find_setting};

use crate::session::{Session, unexpected};
use crate::{CliError, ConfigCommand, show};

/// Shows one setting or all. Without a daemon, shows the values in the configuration file.
pub(crate) fn get(session: Session<'_>, name: Option<&str>, config: &Path) -> Result<(), CliError> {
    let request = name.map_or(Request::Settings, |name| Request::Get { name: name.into() });
    let answer = match session.ask(&request) {
        Err(CliError::NoDaemon(_)) => {
            let report = from_file(name, config)?;
            tell_of_no_daemon(session, &format!("these are the settings of {}", config.display()));
            Response::Settings(report)
        }
        answer => answer?,
    };
    let Response::Settings(report) = &answer else { return Err(unexpected(&answer)) };
    if name.is_none() {
        return session.print(&answer, show::answer);
    }
    report.pending().iter().for_each(|change| eprintln!("{}", show::pending(change)));
    session.print(&answer, |out, _| report.settings.iter().try_for_each(|s| writeln!(out, "{}", s.value)))
}

fn from_file(name: Option<&str>, config: &Path) -> Result<SettingsReport, CliError> {
    let settings = load_config(config)?;
    let Some(name) = name else { return Ok(SettingsReport::all(&settings)) };
    let setting = find_setting(name).map_err(failed)?;
    Ok(SettingsReport::one(setting, &settings))
}

/// Reports on standard error that no daemon runs. Standard output then contains only the answer, for scripts.
fn tell_of_no_daemon(session: Session<'_>, what: &str) {
    eprintln!(
        "no daemon is listening on {}: {what}, in force from its next start",
        session.control.display()
    );
}

fn failed(error: impl ToString) -> CliError {
    CliError::Failed(error.to_string())
}

/// Changes settings one by one. First checks the names and values of all assignments, so a faulty assignment changes no setting.
pub(crate) fn set(session: Session<'_>, assignments: &[String], config: &Path) -> Result<(), CliError> {
    let mut changes = Vec::new();
    for assignment in assignments {
        let (name, value) = assignment
            .split_once('=')
            .ok_or_else(|| CliError::Usage(format!("`{assignment}` has no `=`: expected NAME=VALUE")))?;
        let setting = Settings::default().set(name.trim(), value).map_err(failed)?;
        changes.push((setting, value.trim()));
    }
    match session.ask(&Request::Settings) {
        Err(CliError::NoDaemon(_)) => return set_for_next_start(session, &changes, config),
        answer => answer?,
    };
    for (setting, value) in changes {
        let answer = match setting.is_roots() {
            true => set_in_file(session, setting, value, config)?,
            false => session.ask(&Request::Set { name: setting.name.into(), value: value.into() })?,
        };
        show_changed(session, &answer)?;
    }
    Ok(())
}

/// Prints settings after a change. Warns of a UDP port that cannot be opened now.
fn show_changed(session: Session<'_>, answer: &Response) -> Result<(), CliError> {
    let Response::Settings(report) = answer else { return Err(unexpected(answer)) };
    for row in report.settings.iter().filter(|row| row.name == "udp_port") {
        let is_open = row.in_force.as_ref() == Some(&row.value);
        let problem = row.value.parse().ok().filter(|_| !is_open).and_then(udp_port_problem);
        problem.iter().for_each(|problem| eprintln!("warning: {problem}"));
    }
    session.print(answer, |out, _| show::changed(out, report))
}

/// Writes all changes to the configuration file. Writes no change if a changed setting names an unavailable resource. An unavailable UDP
/// port causes only a warning.
fn set_for_next_start(
    session: Session<'_>,
    changes: &[(&Setting, &str)],
    config: &Path,
) -> Result<(), CliError> {
    let mut wanted = load_config(config)?;
    for (setting, value) in changes {
        setting.change(&mut wanted, value).map_err(failed)?;
    }
    changes.iter().try_for_each(|(setting, _)| try_setting(setting, &wanted)).map_err(failed)?;
    for (setting, value) in changes {
        save_setting(config, setting.name, value)?;
    }
    tell_of_no_daemon(session, &format!("written to {}", config.display()));
    changes.iter().try_for_each(|(setting, _)| {
        show_changed(session, &Response::Settings(SettingsReport::one(setting, &wanted)))
    })
}

/// Writes a setting to the configuration file on behalf of the daemon, which must not change this setting itself. Then makes the daemon
/// read the file again. Only root can usually write the file. The caller supplies the path; the path is not requested from the daemon.
fn set_in_file(
    session: Session<'_>,
    setting: &Setting,
    value: &str,
    config: &Path,
) -> Result<Response, CliError> {
    let mut wanted = Settings::default();
    setting.change(&mut wanted, value).map_err(failed)?;
    try_setting(setting, &wanted).map_err(failed)?;
    save_setting(config, setting.name, value)?;
    let written = format!("{} is written to {}", setting.name, config.display());
    match session.ask(&Request::Reload) {
        Ok(_) => {}
        // A confined daemon may be unable to read a file that it can read at its next start.
        Err(CliError::Refused(refusal)) if setting.needs_restart => {
            eprintln!(
                "{written} and takes effect at the daemon's next start; the daemon answers now: {}",
                refusal.message
            );
            return Ok(Response::Settings(SettingsReport::one(setting, &wanted)));
        }
        Err(error) => {
            let text = format!("{written}, but the daemon does not apply it: {error}");
            return Err(CliError::Failed(text));
        }
    }
    let answer = session.ask(&Request::Get { name: setting.name.into() })?;
    let Response::Settings(report) = &answer else { return Err(unexpected(&answer)) };
    if report.settings.iter().any(|told| told.value != setting.value(&wanted)) {
        let text = format!("{written}, but the daemon reads another file: name it with --config");
        return Err(CliError::Failed(text));
    }
    Ok(answer)
}

/// Shows or checks the configuration file.
pub(crate) fn config(session: Session<'_>, command: &ConfigCommand) -> Result<(), CliError> {
    match command {
        ConfigCommand::Show { default: true, .. } => {
            let answer = Response::Settings(SettingsReport::all(&Settings::default()));
            session.print(&answer, |out, _| write!(out, "{}", default_config_text()))
        }
        ConfigCommand::Show { default: false, config } => {
            let (_, settings) = load_named(config.as_deref())?;
            let answer = Response::Settings(SettingsReport::all(&settings));
            session.print(&answer, |out, _| write!(out, "{}", print_config(&settings)))
        }
        ConfigCommand::Check { config } => {
            let (path, _) = load_named(config.as_deref())?;
            let found = if path.exists() { "is valid" } else { "does not exist: the defaults apply" };
            session.print(&Response::Done(Done::new(format!("{} {found}", path.display()))), show::answer)
        }
    }
}

/// Loads the settings of the named file, which must exist. Without a name, loads the default file, which need not exist.
fn load_named(named: Option<&Path>) -> Result<(PathBuf, Settings), CliError> {
    let path = named.unwrap_or(Path::new(DEFAULT_CONFIG));
    if named.is_some() && !path.exists() {
        let text = format!(
            "{} does not exist: create it (`sctpify config show --default`), or name another file",
            path.display()
        );
        return Err(CliError::Failed(text));
    }
    Ok((path.into(), load_config(path)?))
}
