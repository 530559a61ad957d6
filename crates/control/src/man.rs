//! Manual pages of a program and its commands, from the definition of its command line.

use std::fs;
use std::io;
use std::path::Path;

use clap::Command;
use clap_mangen::Man;

/// Writes NAME.8 and a page for each command that is shown, to a directory that is there. The command must be built.
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
