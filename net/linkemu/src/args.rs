//! The command line of `linkemu`. The table [`netem::KEYS`] lists the settings. Each setting is a flag on the command line and a
//! key in a file of links.

use std::path::PathBuf;

use clap::{Arg, ArgMatches, Args, Command as Clap, FromArgMatches, Parser, Subcommand};
use netem::{KEYS, Spec};
use ops::Docs;

use bridge::LinkEnd;

/// Default directory of control sockets.
pub const DEFAULT_DIR: &str = "/run/linkemu";

/// Emulate a link between two interfaces with rate, delay, queue, loss and other faults
///
/// Joins two interfaces as a cable would, and applies the settings to each direction separately. Requires root (CAP_NET_RAW;
/// CAP_SYS_ADMIN for other namespaces). The interfaces need no addresses. While the link runs, both interfaces are in promiscuous
/// mode. The kernel ends this mode with the link, even if the link's process is killed. The link changes nothing else on the
/// interfaces.
///
/// Exit status: 0 success, 1 refused or failed, 2 usage error.
#[derive(Parser, Debug)]
#[command(name = "linkemu", version = version::FULL, max_term_width = 100, disable_help_subcommand = true)]
pub struct Linkemu {
    /// Directory of control sockets
    #[arg(long, global = true, value_name = "DIR", env = "LINKEMU_DIR", default_value = DEFAULT_DIR)]
    pub dir: PathBuf,

    /// Print JSON
    #[arg(long, global = true)]
    pub json: bool,

    /// Command to run
    #[command(subcommand)]
    pub command: Command,
}

/// Commands of `linkemu`.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Start a link in the background
    ///
    /// Example: linkemu add alpha beta --rate 1.5mbit --delay 35ms --queue 50 --loss 3%
    Add(Ends),
    /// Run links in the foreground until stopped
    ///
    /// Runs the links of a file, or one link given by its ends and settings. A file has one table [[link]] for each link. The keys of
    /// this table are a and b, optionally name and seed, and the settings of both directions. The tables [link.ab] and [link.ba]
    /// hold the settings of one direction.
    Run(RunArgs),
    /// Change settings of a running link; they apply from the next packet on
    Set {
        /// Name of the link
        name: String,
        /// Settings
        #[command(flatten)]
        settings: Settings,
    },
    /// Show links with their settings and packet counters
    Show {
        /// Name of the link; all links by default
        name: Option<String>,
    },
    /// Stop links
    Del {
        /// Names of the links
        #[arg(required_unless_present = "all")]
        names: Vec<String>,
        /// All links
        #[arg(long, conflicts_with = "names")]
        all: bool,
    },
    /// Run the process of a link
    #[command(hide = true)]
    Serve {
        /// The link, as JSON
        plan: String,
    },
    /// Manual pages and completions
    #[command(flatten)]
    Docs(Docs),
}

/// Arguments of `linkemu run`.
#[derive(clap::Args, Debug)]
pub struct RunArgs {
    /// TOML file of links; settings on the command line apply to all of them
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["ends", "name"])]
    pub file: Option<PathBuf>,
    /// Ends of one link
    #[arg(value_names = ["A", "B"], num_args = 2, required_unless_present = "file")]
    pub ends: Vec<LinkEnd>,
    /// Name, seed and settings
    #[command(flatten)]
    pub wishes: Wishes,
}

/// A link, given by its ends and settings.
#[derive(clap::Args, Debug)]
pub struct Ends {
    /// One end: INTERFACE, or NAMESPACE:INTERFACE
    #[arg(value_name = "A")]
    pub a: LinkEnd,
    /// Other end
    #[arg(value_name = "B")]
    pub b: LinkEnd,
    /// Name, seed and settings
    #[command(flatten)]
    pub wishes: Wishes,
}

/// Optional properties of a link.
#[derive(clap::Args, Clone, Debug)]
pub struct Wishes {
    /// Name of the link [default: formed from the ends]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Seed of the random numbers; the same seed and the same packets give the same result
    #[arg(long, value_name = "NUMBER")]
    pub seed: Option<u64>,
    /// Settings
    #[command(flatten)]
    pub settings: Settings,
}

/// Settings for both directions of a link, and settings for one direction, which override them.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Settings {
    /// Settings of both directions.
    pub both: Spec,
    /// Settings of the direction from a to b only.
    pub ab: Spec,
    /// Settings of the direction from b to a only.
    pub ba: Spec,
}

/// Flags for the settings of one direction, each with its name and help text.
const DIRECTIONS: [(&str, &str); 2] = [
    ("ab", "Settings from A to B only, such as rate=8mbit,queue=100"),
    ("ba", "Settings from B to A only, such as rate=1mbit,delay=40ms"),
];

impl Args for Settings {
    fn augment_args(command: Clap) -> Clap {
        let settings = KEYS.iter().map(|key| {
            let arg = Arg::new(key.name).long(key.name).value_name(key.value).help(key.doc);
            match key.value {
                "yes|no" => arg.num_args(0..=1).default_missing_value("yes"),
                _ => arg,
            }
        });
        let directions = DIRECTIONS
            .iter()
            .map(|(name, help)| Arg::new(*name).long(*name).value_name("SETTINGS").help(*help));
        command.args(settings.chain(directions))
    }

    fn augment_args_for_update(command: Clap) -> Clap {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Settings {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Settings, clap::Error> {
        let mut settings = Settings::default();
        settings.update_from_arg_matches(matches)?;
        Ok(settings)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        for key in KEYS {
            if let Some(value) = matches.get_one::<String>(key.name) {
                self.both.set(key.name, value);
            }
        }
        for ((name, _), spec) in DIRECTIONS.iter().zip([&mut self.ab, &mut self.ba]) {
            if let Some(text) = matches.get_one::<String>(name) {
                *spec = Spec::parse(text).map_err(|error| {
                    clap::Error::raw(clap::error::ErrorKind::ValueValidation, format!("{error}\n"))
                })?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_definition_is_valid() {
        Linkemu::command().debug_assert();
    }

    #[test]
    fn every_setting_is_a_flag_and_each_direction_has_its_own() {
        let words =
            "linkemu add red:eth0 eth1 --rate 1.5mbit --loss 3% --cut --ab rate=8mbit,queue=9 --name x";
        let Command::Add(ends) = Linkemu::parse_from(words.split(' ')).command else { panic!("no add") };
        assert_eq!((ends.a.to_string().as_str(), ends.b.interface.as_str()), ("red:eth0", "eth1"));
        assert_eq!(ends.wishes.settings.both, Spec::parse("rate=1.5mbit,loss=3%,cut=yes").unwrap());
        assert_eq!(ends.wishes.settings.ab, Spec::parse("rate=8mbit,queue=9").unwrap());
        assert!(ends.wishes.settings.ba.is_empty());
    }

    #[test]
    fn run_takes_a_file_or_the_ends_of_one_link() {
        let run = |words: &str| {
            let args = Linkemu::try_parse_from(format!("linkemu run {words}").split(' ')).ok()?;
            if let Command::Run(run) = args.command {
                Some((run.file.is_some(), run.ends.len()))
            } else {
                None
            }
        };
        assert_eq!(run("-f x.toml --loss 1%"), Some((true, 0)));
        assert_eq!(run("a b --delay 1ms"), Some((false, 2)));
        for wrong in ["-f x.toml a b", "a", "--delay 1ms", "-f x.toml --name x"] {
            assert_eq!(run(wrong), None, "{wrong}");
        }
    }
}
