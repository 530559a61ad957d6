//! Manual pages and completions of programs, from the definitions of their command lines.

use std::fs;
use std::io;
use std::path::Path;

use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;

/// Writes NAME.8 and a page for each visible command to an existing directory. The command must be built.
///
/// # Errors
/// When a file cannot be written.
pub fn write_command_pages(dir: &Path, command: &Command) -> io::Result<()> {
    let name = command.get_display_name().unwrap_or(command.get_name()).to_owned();
    let mut page = Vec::new();
    Man::new(command.clone()).section("8").manual("sctpify").render(&mut page)?;
    fs::write(dir.join(format!("{name}.8")), page)?;
    let shown = command.get_subcommands().filter(|c| !c.is_hide_set() && c.get_name() != "help");
    shown.into_iter().try_for_each(|c| write_command_pages(dir, c))
}

/// Generates the completions of the program with this name for a shell.
///
/// # Errors
/// When no program has that name; the text lists the names.
pub fn completions(shell: Shell, programs: &mut [Command], name: &str) -> Result<Vec<u8>, String> {
    let Some(found) = programs.iter().position(|program| program.get_name() == name) else {
        let names: Vec<&str> = programs.iter().map(Command::get_name).collect();
        return Err(format!("there is no program `{name}`: say {}", names.join(" or ")));
    };
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut programs[found], name, &mut text);
    Ok(if shell == Shell::Bash { with_one_name(&text, name) } else { text })
}

/// Unifies command names: for bash, clap_complete (4.6.11) names the commands of a program with a dash in two ways, so their
/// options would not be completed.
fn with_one_name(text: &[u8], name: &str) -> Vec<u8> {
    let named = |separator: &str| format!("{}__subcmd__", name.replace('-', separator));
    String::from_utf8_lossy(text).replace(&named("__subcmd__"), &named("__")).into_bytes()
}
