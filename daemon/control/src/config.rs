//! Reads and writes the text of the configuration file: TOML with one key per setting. The documentation of each key comes from the table
//! of settings. Policies of links, and declared rules, are TOML tables.

use std::fmt::Write;

use rules::{DeclaredRule, Kind, LinkPolicy, SETTINGS, Setting, SettingError, Settings, find_setting};
use toml_edit::{ArrayOfTables, Document, DocumentMut, Item, Table, TableLike, Value};

/// A fault in a configuration file, and its line.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{}{problem}", .line.map(|l| format!("line {l}: ")).unwrap_or_default())]
pub struct ConfigError {
    /// Line number, from 1; `None` if the fault is not in the file.
    pub line: Option<usize>,
    /// Description of the fault.
    pub problem: String,
}

/// Parses the text of a configuration file. Settings that the text does not contain keep their defaults.
///
/// # Errors
/// The first faulty line: invalid TOML, an unknown key, or a value out of range.
pub fn parse_config(text: &str) -> Result<Settings, ConfigError> {
    let document = Document::parse(text).map_err(|e| not_toml(text, &e))?;
    let mut settings = Settings::default();
    for (name, item) in document.iter() {
        let span = document.get_key_value(name).and_then(|(key, _)| key.span()).or_else(|| item.span());
        let line = line_of(text, span.map_or(0, |s| s.start));
        let at = |problem: String| ConfigError { line, problem };
        let setting = find_key(name).map_err(at)?;
        match setting.kind {
            Kind::Links => {
                let add = |policy| settings.links.push(policy);
                read_tables(text, line, item, ("link", "match = \"eth1\""), LinkPolicy::set, add)?;
                continue;
            }
            Kind::Rules => {
                let add = |rule| settings.rules.push(rule);
                read_tables(text, line, item, ("rule", "to = \"192.0.2.7\""), DeclaredRule::set, add)?;
                continue;
            }
            _ => {}
        }
        let value = value_text(item).ok_or_else(|| at(format!("{name} takes {}", setting.kind)))?;
        setting.change(&mut settings, &value).map_err(|e| at(e.to_string()))?;
    }
    Ok(settings)
}

/// Reads tables with this name. Calls `set` for each key, and `add` for each table. `example` is a line of such a table.
fn read_tables<T: Default, E: ToString>(
    text: &str,
    line: Option<usize>,
    item: &Item,
    (name, example): (&str, &str),
    set: fn(&mut T, &str, &str) -> Result<(), E>,
    mut add: impl FnMut(T) -> Result<(), E>,
) -> Result<(), ConfigError> {
    let fault = |line, problem: String| ConfigError { line, problem };
    let tables: Vec<&dyn TableLike> = match item {
        Item::ArrayOfTables(tables) => tables.iter().map(|table| table as &dyn TableLike).collect(),
        Item::Value(Value::Array(values)) if values.iter().all(Value::is_inline_table) => {
            values.iter().filter_map(|value| value.as_inline_table()).map(|table| table as _).collect()
        }
        _ => {
            let problem = format!("{name}s are tables: write [[{name}]], and below it {example}");
            return Err(fault(line, problem));
        }
    };
    for table in tables {
        let (mut entry, mut first) = (T::default(), None);
        for (key, item) in table.iter() {
            let span = table.get_key_value(key).and_then(|(key, _)| key.span()).or_else(|| item.span());
            let start = span.map(|span| span.start);
            first = first.or(start);
            // A line is counted only for a fault, because its count takes as long as the text before it.
            let at = || start.map_or(line, |start| line_of(text, start));
            let value = value_text(item).ok_or_else(|| {
                fault(at(), format!("{key} of a {name} takes a string, a whole number, true or false"))
            })?;
            set(&mut entry, key, &value).map_err(|error| fault(at(), error.to_string()))?;
        }
        let at = || first.map_or(line, |start| line_of(text, start));
        add(entry).map_err(|error| fault(at(), error.to_string()))?;
    }
    Ok(())
}

fn find_key(name: &str) -> Result<&'static Setting, String> {
    find_setting(name).map_err(|e| match e {
        SettingError::Unknown { nearest: Some(near), .. } => {
            format!("unknown key `{name}`; did you mean `{near}`?")
        }
        _ => format!("unknown key `{name}`; `sctpify config show --default` shows all keys"),
    })
}

fn not_toml(text: &str, error: &toml_edit::TomlError) -> ConfigError {
    let offset = error.span().map_or(0, |s| s.start);
    ConfigError { line: line_of(text, offset), problem: error.message().to_owned() }
}

fn line_of(text: &str, offset: usize) -> Option<usize> {
    Some(text.as_bytes().iter().take(offset).filter(|&&b| b == b'\n').count() + 1)
}

/// Converts a plain TOML value to the text form of settings; `None` for tables, arrays, dates and fractions.
fn value_text(item: &Item) -> Option<String> {
    match item.as_value()? {
        Value::Boolean(b) => Some(b.value().to_string()),
        Value::Integer(i) => Some(i.value().to_string()),
        Value::String(s) => Some(s.value().clone()),
        _ => None,
    }
}

/// Changes one setting in the text of a configuration file. Keeps comments and the order of keys. If the key is in a comment line, such as
/// `# udp_port = 9899`, the key with the new value replaces this line.
///
/// # Errors
/// If the text is not TOML, or if the setting does not accept the value.
pub fn set_in_config(text: &str, name: &str, value: &str) -> Result<String, ConfigError> {
    let mut document: DocumentMut = text.parse().map_err(|e| not_toml(text, &e))?;
    let mut settings = Settings::default();
    let setting = settings.set(name, value).map_err(refused)?;
    if is_tables(setting) {
        // Tables go to the end of the file, because TOML assigns each key below a table to the table. A commented-out key below a table
        // would also belong to the table once a user uncomments the key.
        document.remove(setting.name);
        return Ok(document.to_string() + &print_tables(setting, &settings));
    }
    let mut new = toml_value(setting, &settings);
    match document.get_mut(setting.name).and_then(Item::as_value_mut) {
        Some(old) => {
            *new.decor_mut() = old.decor().clone();
            *old = new;
        }
        None => match revive(text, setting.name, &new) {
            // Below a table, the uncommented key would belong to the table.
            Some(revived) if parse_config(&revived) == changed(text, setting, value) => return Ok(revived),
            _ => document[setting.name] = Item::Value(new),
        },
    }
    Ok(document.to_string())
}

/// Converts a fault that no line of a file has.
fn refused(error: SettingError) -> ConfigError {
    ConfigError { line: None, problem: error.to_string() }
}

/// Returns the settings of a configuration file with one changed setting.
fn changed(text: &str, setting: &Setting, value: &str) -> Result<Settings, ConfigError> {
    let mut settings = parse_config(text)?;
    setting.change(&mut settings, value).map_err(refused)?;
    Ok(settings)
}

/// Replaces the commented-out key by the key with this value; `None` if the text has no such line.
fn revive(text: &str, name: &str, value: &Value) -> Option<String> {
    let commented = format!("# {name} = ");
    let start = if text.starts_with(&commented) { 0 } else { text.find(&format!("\n{commented}"))? + 1 };
    let end = text[start..].find('\n').map_or(text.len(), |length| start + length);
    Some(format!("{}{name} = {}{}", &text[..start], value.to_string().trim(), &text[end..]))
}

/// Converts a setting's value to TOML: switches to booleans, numbers to integers, words to strings.
fn toml_value(setting: &Setting, settings: &Settings) -> Value {
    let text = setting.value(settings);
    match setting.kind {
        Kind::Bool => Value::from(text == "1"),
        Kind::Number { .. } => text.parse::<i64>().map_or_else(|_| Value::from(text.as_str()), Value::from),
        Kind::Word(_)
        | Kind::Url(_)
        | Kind::Listen
        | Kind::Path
        | Kind::User
        | Kind::Weights
        | Kind::Links
        | Kind::Rules
        | Kind::Interfaces => Value::from(text),
    }
}

/// Reports whether the values of a setting are tables.
fn is_tables(setting: &Setting) -> bool {
    matches!(setting.kind, Kind::Links | Kind::Rules)
}

/// Prints the tables of a setting, each after an empty line.
fn print_tables(setting: &Setting, settings: &Settings) -> String {
    let all: Vec<Vec<(&str, String)>> = match setting.kind {
        Kind::Links => settings.links.iter().map(LinkPolicy::entries).collect(),
        _ => settings.rules.entries(),
    };
    let tables: ArrayOfTables = all
        .into_iter()
        .map(|entries| {
            let entries = entries.into_iter().map(|(key, value)| (key, table_value(key, &value)));
            let mut table = Table::from_iter(entries);
            table.decor_mut().set_prefix("\n");
            table
        })
        .collect();
    DocumentMut::from(Table::from_iter([(setting.name, Item::ArrayOfTables(tables))])).to_string()
}

/// Converts the value of a table's key to TOML.
fn table_value(key: &str, value: &str) -> Value {
    let number = || value.parse::<i64>().ok().map(Value::from);
    match key {
        "heartbeat_s" | "cap_mb" | "cap_day" | "advertise_interval" => {
            number().unwrap_or_else(|| Value::from(value))
        }
        "tcp" | "require" | "own" => Value::from(value == "true"),
        _ => Value::from(value),
    }
}

/// Returns settings with an example of the tables of a setting.
fn sample() -> Settings {
    Settings {
        links: "wwan* name=lte use=backup heartbeat_s=30".parse().unwrap_or_default(),
        rules: "-A -c remote -p enable -d 192.0.2.0/24 -P 22 --name ssh".parse().unwrap_or_default(),
        ..Settings::default()
    }
}

/// Prints these settings as a configuration file, each key with its documentation. The parsed file gives the same settings.
pub fn print_config(settings: &Settings) -> String {
    print(settings, "")
}

/// Prints a configuration file that changes nothing. Every key is commented out, with its documentation and its default.
pub fn default_config_text() -> String {
    print(&Settings::default(), "# ")
}

fn print(settings: &Settings, before_key: &str) -> String {
    let mut text = String::from("# sctpify.toml - settings of sctpifyd. See sctpify.toml(5).\n");
    let sample = sample();
    for setting in SETTINGS {
        text.push('\n');
        for line in wrap(setting.doc, 98) {
            let _ = writeln!(text, "# {line}");
        }
        if is_tables(setting) {
            let _ = writeln!(text, "# Takes tables, at the end of this file:");
            let is_set = before_key.is_empty() && !setting.value(settings).is_empty();
            let tables = print_tables(setting, if is_set { settings } else { &sample });
            for line in tables.trim_start().lines() {
                let comment = if is_set || line.is_empty() { "" } else { "# " };
                let _ = writeln!(text, "{comment}{line}");
            }
            continue;
        }
        let default = toml_value(setting, &Settings::default());
        let restart = if setting.needs_restart { "; a change waits for the next start" } else { "" };
        let _ = writeln!(text, "# Takes {}. Default: {default}{restart}.", setting.kind);
        let _ = writeln!(text, "{before_key}{} = {}", setting.name, toml_value(setting, settings));
    }
    text
}

fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.len() + 1 + word.len() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.into()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_printed_default_is_the_default() {
        assert_eq!(parse_config(&default_config_text()), Ok(Settings::default()));
        assert_eq!(parse_config(&print_config(&Settings::default())), Ok(Settings::default()));
    }

    #[test]
    fn settings_print_and_read_back() {
        let mut settings = Settings::default();
        for (name, value) in
            [("enable", "0"), ("udp_port", "9900"), ("carriers", "udp"), ("race_timer_ms", "100")]
        {
            settings.set(name, value).unwrap();
        }
        assert_eq!(parse_config(&print_config(&settings)), Ok(settings));
    }

    const LINKS: &str = "\n[[link]]\nmatch = \"wwan*\" # the stick\nname = \"lte\"\nuse = \"backup\"\nheartbeat_s = 60\n\n\
                         [[link]]\nmatch = \"eth1\"\nname = \"fibre\"\n";

    #[test]
    fn links_are_tables_and_print_and_read_back() {
        let settings = parse_config(&format!("udp_port = 9900\n{LINKS}")).unwrap();
        assert_eq!(settings.links.to_string(), "wwan* name=lte use=backup heartbeat_s=60; eth1 name=fibre");
        assert_eq!(parse_config(&print_config(&settings)), Ok(settings.clone()));
        let inline = "link = [{ match = \"wwan*\", name = \"lte\", use = \"backup\", heartbeat_s = 60 }, \
                      { match = \"eth1\", name = \"fibre\" }]";
        assert_eq!(parse_config(inline).unwrap().links, settings.links);
    }

    #[test]
    fn the_samples_of_tables_in_the_printed_default_can_be_uncommented() {
        let text = default_config_text();
        let uncommented = |table: &str| {
            let sample = text.find(table).expect("a sample");
            let length = text[sample..].find("\n\n").unwrap_or(text.len() - sample);
            let sample = &text[sample..sample + length];
            text.replace(sample, &sample.replace("# ", ""))
        };
        let links = parse_config(&uncommented("# [[link]]")).unwrap().links;
        assert_eq!(links.to_string(), "wwan* name=lte use=backup heartbeat_s=30");
        let rules = parse_config(&uncommented("# [[rule]]")).unwrap().rules;
        assert_eq!(rules.to_string(), "-A -c remote -p enable -d 192.0.2.0/24 -P 22 --name ssh");
    }

    #[test]
    fn faults_of_links_name_their_line() {
        let fault = |text: &str| parse_config(text).unwrap_err();
        let unknown = fault("enable = true\n[[link]]\nmatch = \"eth0\"\nuse = \"spare\"\n");
        assert_eq!(unknown.line, Some(4));
        assert!(unknown.problem.contains("primary, secondary, backup, never"), "{unknown}");
        assert_eq!(fault("[[link]]\nmatch = \"eth0\"\n\n[[link]]\nname = \"fibre\"\n").line, Some(5));
        assert!(fault("link = \"eth0\"\n").problem.contains("[[link]]"));
        assert!(fault("[link]\nmatch = \"eth0\"\n").problem.contains("[[link]]"));
        assert_eq!(fault("[[link]]\nmatch = \"eth0\"\nmatch = \"eth1\"\n").line, Some(3));
    }

    #[test]
    fn setting_links_replaces_the_tables_and_leaves_the_rest() {
        let text = format!("# mine\nudp_port = 9900\n{LINKS}");
        let changed = set_in_config(&text, "link", "wlan0 use=never").unwrap();
        assert!(changed.starts_with("# mine\nudp_port = 9900\n"), "{changed}");
        assert_eq!(parse_config(&changed).unwrap().links.to_string(), "wlan0 use=never");
        let alive = set_in_config(&default_config_text(), "link", "wlan0 use=never").unwrap();
        let alive = parse_config(&alive.replace("# udp_port = 9899", "udp_port = 9900")).unwrap();
        assert_eq!((alive.udp_port, alive.links.to_string().as_str()), (9900, "wlan0 use=never"));
        let none = set_in_config(&changed, "link", "").unwrap();
        assert_eq!(none, "# mine\nudp_port = 9900\n");
        let again = set_in_config(&text, "carriers", "udp").unwrap();
        assert_eq!(parse_config(&again).unwrap().links, parse_config(&text).unwrap().links);
        assert_eq!(parse_config(&again).unwrap().get("carriers").unwrap(), "udp");
    }

    #[test]
    fn a_commented_key_below_a_table_is_not_brought_to_life_there() {
        let text = format!("{LINKS}\n{}", default_config_text());
        let changed = set_in_config(&text, "udp_port", "9901").unwrap();
        assert_eq!(parse_config(&changed).unwrap().get("udp_port").unwrap(), "9901");
    }

    #[test]
    fn an_unknown_key_names_its_line_and_the_nearest_key() {
        let error = parse_config("enable = true\n\n# more\nrace_timer = 100\n").unwrap_err();
        assert_eq!(error.to_string(), "line 4: unknown key `race_timer`; did you mean `race_timer_ms`?");
    }

    #[test]
    fn a_value_out_of_range_names_its_line_and_the_range() {
        let error = parse_config("enable = true\nudp_port = 0\n").unwrap_err();
        assert_eq!(error.to_string(), "line 2: invalid value `0` for udp_port: it takes 1 to 65535");
        assert_eq!(parse_config("[enable]\nx = 1\n").unwrap_err().line, Some(1));
    }

    #[test]
    fn a_toml_error_names_its_line() {
        assert_eq!(parse_config("enable = true\nudp_port = = 3\n").unwrap_err().line, Some(2));
    }

    #[test]
    fn setting_a_key_keeps_comments_and_order() {
        let text = "# mine\nudp_port = 9900 # as the firewall allows\n\nenable = true\n";
        let changed = set_in_config(text, "udp_port", "9901").unwrap();
        assert_eq!(changed, text.replace("9900", "9901"));
        let added = set_in_config(text, "carriers", "udp").unwrap();
        assert_eq!(added, format!("{text}carriers = \"udp\"\n"));
    }

    #[test]
    fn setting_a_commented_key_brings_it_to_life_in_its_place() {
        let changed = set_in_config(&default_config_text(), "udp_port", "9901").unwrap();
        assert_eq!(changed, default_config_text().replace("# udp_port = 9899", "udp_port = 9901"));
    }

    const RULES: &str = "\n[[rule]]\nports = \"22\"\nto = \"192.0.2.0/24\"\nrequire = true\nname = \"ssh\"\n\n\
        [[rule]]\nports = \"any\"\nat = \"any\"\nadvertise = \"timer\"\nadvertise_interval = 200\n";

    #[test]
    fn declared_rules_are_read_printed_and_replaced() {
        let settings = parse_config(&format!("udp_port = 9900\n{RULES}{LINKS}")).unwrap();
        let lines = settings.rules.to_string();
        assert_eq!(
            lines,
            "-A -c local -p enable --advertise timer --advertise-interval 200\n\
             -A -c remote -p enable -d 192.0.2.0/24 -P 22 --require --name ssh"
        );
        assert_eq!(parse_config(&print_config(&settings)), Ok(settings.clone()));
        assert_eq!(parse_config("rule = [{ at = \"any\", ports = 22 }]").unwrap().rules.entries().len(), 1);
        let changed =
            set_in_config(&print_config(&settings), "rule", "-A -c local -p disable -P 25").unwrap();
        let changed = parse_config(&changed).unwrap();
        assert_eq!(changed.rules.to_string(), "-A -c local -p disable -P 25");
        assert_eq!((changed.links, changed.udp_port), (settings.links, 9900));
    }

    #[test]
    fn a_setting_with_the_name_of_a_rules_key_does_not_change_the_rule() {
        let text = "[[rule]]\nports = 22\nto = \"any\"\n\n# advertise = \"off\"\n";
        let changed = set_in_config(text, "advertise", "timer").unwrap();
        let settings = parse_config(&changed).unwrap();
        assert_eq!(settings.get("advertise").unwrap(), "timer");
        assert_eq!(settings.rules, parse_config(text).unwrap().rules, "{changed}");
    }

    #[test]
    fn a_faulty_rule_names_its_line() {
        let fault = |text: &str| parse_config(text).unwrap_err();
        let error = fault("enable = true\n\n[[rule]]\nports = 22\nat = \"192.0.2\"\n");
        assert_eq!(error.line, Some(5));
        assert!(error.problem.starts_with("at of a rule: "), "{error}");
        let error = fault("[[rule]]\nports = 22\n\n[[rule]]\nports = 25\nat = \"any\"\n");
        assert!(error.line == Some(2) && error.problem.contains("needs `to`"), "{error}");
        let error = fault("rule = 22\n");
        assert_eq!(error.problem, "rules are tables: write [[rule]], and below it to = \"192.0.2.7\"");
    }
}
