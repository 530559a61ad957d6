//! Generates manual pages, reference pages and completions from the definitions of the command lines, the settings and the metrics.

use std::io::Write;

use clap::{Command, CommandFactory};
use clap_mangen::roff::{Roff, bold, roman};
use control::{DEFAULT_CONFIG, DaemonArgs, Status};
use ops::{Docs, DocsError};
use rules::{SETTINGS, Setting};

use crate::{CliError, Sctpify, Shimrules};

/// Executes a documentation command:
///
/// - `man` writes sctpify(8), a page for each of its commands, shimrules(8), sctpifyd(8) and sctpify.toml(5) to a directory.
/// - `reference` writes the reference pages to a directory.
/// - `completions` prints the completions of one program.
///
/// # Errors
/// If no program has the requested name, or the output cannot be written.
pub(crate) fn write(docs: &Docs, out: &mut dyn Write) -> Result<(), CliError> {
    let pages = [
        ("sctpify.toml.5", settings_page().to_roff().into_bytes()),
        ("settings.md", settings_reference().into_bytes()),
        ("metrics.md", metrics_reference().into_bytes()),
    ];
    docs.run(programs(), &pages, out).map_err(|error| match error {
        DocsError::NoProgram { .. } => CliError::Usage(error.to_string()),
        DocsError::Io { .. } => CliError::Failed(error.to_string()),
    })
}

fn programs() -> Vec<Command> {
    vec![Sctpify::command(), Shimrules::command(), DaemonArgs::command()]
}

/// Returns the reference page of the settings.
fn settings_reference() -> String {
    let mut page = format!(
        "# Settings\n\nThe daemon reads its settings from {DEFAULT_CONFIG}. `sctpify set NAME=VALUE` changes one and keeps the file's \
         comments, and `sctpify get` shows them all.\n"
    );
    for setting in SETTINGS {
        let restart =
            if setting.needs_restart { "\n- A change waits for the next start of the daemon." } else { "" };
        page += &format!(
            "\n## `{}`\n\n{}\n\n- Values: {}\n- Default: {}{restart}\n",
            setting.name,
            setting.doc,
            setting.kind,
            default_of(setting)
        );
    }
    page
}

/// Returns the reference page of the metrics.
fn metrics_reference() -> String {
    format!(
        "# Metrics of the daemon\n\nThe setting `page_port` opens `http://127.0.0.1:PORT/metrics`, in the text format of \
         Prometheus. The setting `metrics_listen` opens them for other hosts, with a token ([how-to](../how-to/prometheus.md)). The \
         daemon counts from its start.\n\n{}",
        control::metrics(&Status::default()).reference()
    )
}

/// Builds sctpify.toml(5) from the table of settings.
fn settings_page() -> Roff {
    let mut page = Roff::new();
    page.control("TH", ["sctpify.toml", "5", "", concat!("sctpify ", env!("CARGO_PKG_VERSION")), "sctpify"]);
    page.control("SH", ["NAME"]).text([roman("sctpify.toml - settings of sctpifyd")]);
    page.control("SH", ["DESCRIPTION"]);
    page.text([roman(format!(
        "A TOML file, {DEFAULT_CONFIG} by default. If the file or a key is missing, the default applies; an unknown key is \
         an error. `sctpify set` changes it and keeps its comments, `sctpify reload` reads it again, `sctpify config check` \
         finds errors, and `sctpify config show --default` prints a template."
    ))]);
    page.control("SH", ["KEYS"]);
    for setting in SETTINGS {
        page.control("TP", []).text([bold(setting.name)]);
        page.text([roman(setting.doc)]);
        let restart =
            if setting.needs_restart { " A change waits for the next start of the daemon." } else { "" };
        let values = format!("Takes {}. Default: {}.{restart}", setting.kind, default_of(setting));
        page.control("IP", []).text([roman(values)]);
    }
    page.control("SH", ["SEE ALSO"]).text([roman("sctpify(8), sctpifyd(8), shimrules(8)")]);
    page
}

/// Returns the default as text. An empty default becomes `nothing`, because it would be invisible.
fn default_of(setting: &Setting) -> String {
    Some(setting.default_value()).filter(|value| !value.is_empty()).unwrap_or_else(|| "nothing".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definitions_of_all_programs_are_sound() {
        for program in programs() {
            program.debug_assert();
        }
    }

    #[test]
    fn the_settings_page_names_every_setting_with_its_default() {
        let page = settings_page().render();
        for setting in SETTINGS {
            assert!(page.contains(setting.name), "{}", setting.name);
            assert!(page.contains(&format!("Default: {}.", default_of(setting))), "{}", setting.name);
        }
        assert!(page.contains("Default: nothing.") && !page.contains("Default: ."));
    }

    #[test]
    fn no_setting_is_described_with_gaps_between_its_words() {
        for setting in SETTINGS {
            assert!(!setting.doc.contains("  "), "{}", setting.name);
        }
    }
}
