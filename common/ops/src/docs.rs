//! Generates manual pages, reference pages and shell completions from the command-line definitions of programs.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::{Command, Subcommand};
use clap_complete::Shell;
use clap_mangen::Man;

/// File name extension of Markdown pages.
const MARKDOWN: &str = ".md";
/// Width of the help text in the reference pages, in columns.
const HELP_WIDTH: usize = 100;

/// Commands for packagers. Each program includes them among its own commands.
#[derive(Subcommand, Clone, Debug)]
pub enum Docs {
    /// Write the manual pages to a directory
    #[command(hide = true)]
    Man {
        /// Output directory; created if it does not exist
        dir: PathBuf,
    },
    /// Write the reference pages, in Markdown, to a directory
    #[command(hide = true)]
    Reference {
        /// Output directory; created if it does not exist
        dir: PathBuf,
    },
    /// Print shell completions
    #[command(hide = true)]
    Completions {
        /// Shell that will use the completions
        shell: Shell,
        /// Program whose completions are printed, if this command covers several programs
        #[arg(long = "for", value_name = "PROGRAM")]
        program: Option<String>,
    },
}

/// Reasons why pages or completions could not be written.
#[derive(Debug, thiserror::Error)]
pub enum DocsError {
    /// A file or the output cannot be written.
    #[error("cannot write to {to}: {error}")]
    Io {
        /// Path of the directory, or "standard output".
        to: String,
        /// The reason.
        error: io::Error,
    },
    /// No program has this name.
    #[error("unknown program `{name}`: expected {known}")]
    NoProgram {
        /// The requested name.
        name: String,
        /// Names of the programs that exist.
        known: String,
    },
}

impl Docs {
    /// Executes the command for `programs`. Prints the completions of the first program unless the command names another program. `pages`
    /// holds further pages, each as a file name and its contents. Pages whose names end in `.md` belong to the reference; all other pages
    /// belong to the manual.
    ///
    /// # Errors
    /// If the output cannot be written, or no program has the requested name.
    pub fn run(
        &self,
        mut programs: Vec<Command>,
        pages: &[(&str, Vec<u8>)],
        out: &mut dyn Write,
    ) -> Result<(), DocsError> {
        match self {
            Docs::Man { dir } => {
                let error = |error| DocsError::Io { to: dir.display().to_string(), error };
                write_pages(dir, &mut programs, pages).map_err(error)
            }
            Docs::Reference { dir } => {
                let error = |error| DocsError::Io { to: dir.display().to_string(), error };
                write_reference(dir, &mut programs, pages).map_err(error)
            }
            Docs::Completions { shell, program } => {
                let text = completions(*shell, &mut programs, program.as_deref())?;
                out.write_all(&text)
                    .map_err(|error| DocsError::Io { to: "standard output".to_owned(), error })
            }
        }
    }
}

fn write_pages(dir: &Path, programs: &mut [Command], pages: &[(&str, Vec<u8>)]) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    for program in programs {
        program.build();
        write_command_pages(dir, program)?;
    }
    let mut manual = pages.iter().filter(|(name, _)| !name.ends_with(MARKDOWN));
    manual.try_for_each(|(name, page)| fs::write(dir.join(name), page))
}

/// Writes NAME.md for each program, with the help of all its visible commands. Also writes those `pages` whose names end in `.md`.
fn write_reference(dir: &Path, programs: &mut [Command], pages: &[(&str, Vec<u8>)]) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    for program in programs {
        program.build();
        let name = program.get_name().to_owned();
        let mut page = format!("# {name}\n");
        add_help(&mut page, program);
        fs::write(dir.join(name + MARKDOWN), page)?;
    }
    let mut reference = pages.iter().filter(|(name, _)| name.ends_with(MARKDOWN));
    reference.try_for_each(|(name, page)| fs::write(dir.join(name), page))
}

/// Writes NAME.8 for a command and for each of its visible subcommands. The caller must have called [`Command::build`].
fn write_command_pages(dir: &Path, command: &Command) -> io::Result<()> {
    let name = command.get_display_name().unwrap_or(command.get_name()).to_owned();
    let mut page = Vec::new();
    Man::new(command.clone()).section("8").manual("sctpify").render(&mut page)?;
    fs::write(dir.join(format!("{name}.8")), page)?;
    shown(command).try_for_each(|command| write_command_pages(dir, command))
}

/// Adds the help of a command and of its visible subcommands. The caller must have called [`Command::build`].
fn add_help(page: &mut String, command: &Command) {
    let name = command.get_bin_name().unwrap_or(command.get_name());
    if command.get_bin_name().is_some_and(|name| name.contains(' ')) {
        *page += &format!("\n## `{name}`\n");
    }
    let help = command.clone().term_width(HELP_WIDTH).render_long_help().to_string();
    let lines: Vec<&str> = help.lines().map(str::trim_end).collect();
    *page += &format!("\n```text\n{}\n```\n", lines.join("\n").trim_end());
    shown(command).for_each(|command| add_help(page, command));
}

fn shown(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|command| !command.is_hide_set() && command.get_name() != "help")
}

fn completions(shell: Shell, programs: &mut [Command], name: Option<&str>) -> Result<Vec<u8>, DocsError> {
    let names: Vec<String> = programs.iter().map(|program| program.get_name().to_owned()).collect();
    let found = name.map_or(Some(0), |name| names.iter().position(|known| known == name));
    let Some(found) = found else {
        let name = name.unwrap_or_default().to_owned();
        return Err(DocsError::NoProgram { name, known: names.join(" or ") });
    };
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut programs[found], &names[found], &mut text);
    Ok(if shell == Shell::Bash { with_one_name(&text, &names[found]) } else { text })
}

/// Makes the function names in a bash script consistent. If the name of a program contains a dash, clap_complete 4.6.11 spells the function
/// names of the program's subcommands in two ways. Bash then does not complete the options of these subcommands.
fn with_one_name(text: &[u8], name: &str) -> Vec<u8> {
    let named = |separator: &str| format!("{}__subcmd__", name.replace('-', separator));
    String::from_utf8_lossy(text).replace(&named("__subcmd__"), &named("__")).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn programs() -> Vec<Command> {
        vec![Command::new("one").subcommand(Command::new("go")), Command::new("two")]
    }

    /// Runs a command that writes to a directory; returns the written files with their contents.
    fn files(kind: &str, of: impl FnOnce(PathBuf) -> Docs) -> Vec<(String, String)> {
        let dir = std::env::temp_dir().join(format!("sctpify-{kind}-{}", std::process::id()));
        let pages = [("one.conf.5", b"text".to_vec()), ("settings.md", b"text".to_vec())];
        of(dir.clone()).run(programs(), &pages, &mut io::sink()).unwrap();
        let mut files: Vec<(String, String)> = fs::read_dir(&dir)
            .unwrap()
            .map(|entry| entry.unwrap())
            .map(|entry| {
                (entry.file_name().into_string().unwrap(), fs::read_to_string(entry.path()).unwrap())
            })
            .collect();
        files.sort();
        fs::remove_dir_all(&dir).unwrap();
        files
    }

    #[test]
    fn each_program_and_command_has_a_page_beside_the_extra_ones() {
        let names: Vec<String> =
            files("man", |dir| Docs::Man { dir }).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["one-go.8", "one.8", "one.conf.5", "two.8"]);
    }

    #[test]
    fn the_reference_has_a_page_for_each_program_with_its_commands_and_no_manual_page() {
        let files = files("reference", |dir| Docs::Reference { dir });
        let names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["one.md", "settings.md", "two.md"]);
        let page = &files[0].1;
        assert!(
            page.starts_with("# one\n\n```text\n") && page.contains("\n## `one go`\n\n```text\n"),
            "{page}"
        );
        assert!(!page.contains("## `one help`"), "{page}");
    }

    #[test]
    fn completions_are_those_of_the_first_program_unless_another_is_named() {
        let of = |program: Option<&str>| {
            let mut out = Vec::new();
            let docs = Docs::Completions { shell: Shell::Bash, program: program.map(str::to_owned) };
            docs.run(programs(), &[], &mut out).map(|()| String::from_utf8(out).unwrap())
        };
        assert!(of(None).unwrap().contains("_one()") && of(Some("two")).unwrap().contains("_two()"));
        assert_eq!(of(Some("x")).unwrap_err().to_string(), "unknown program `x`: expected one or two");
    }
}
