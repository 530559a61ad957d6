//! Reads and writes the text of the configuration file: TOML with one key per setting. The documentation of each key comes from the table
//! of settings. Policies of links are TOML tables.

use std::fmt::Write;

use rules::{Kind, LinkPolicy, Links, SETTINGS, Setting, SettingError, Settings, find_setting};
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
        if setting.kind == Kind::Links {
            settings.links = read_links(text, line, item)?;
            continue;
        }
        let value = value_text(item).ok_or_else(|| at(format!("{name} takes {}", setting.kind)))?;
        setting.change(&mut settings, &value).map_err(|e| at(e.to_string()))?;
    }
    Ok(settings)
}

/// Reads the tables of links.
fn read_links(text: &str, line: Option<usize>, item: &Item) -> Result<Links, ConfigError> {
    let fault = |line, problem: String| ConfigError { line, problem };
    let tables: Vec<&dyn TableLike> = match item {
        Item::ArrayOfTables(tables) => tables.iter().map(|table| table as &dyn TableLike).collect(),
        Item::Value(Value::Array(values)) if values.iter().all(Value::is_inline_table) => {
            values.iter().filter_map(|value| value.as_inline_table()).map(|table| table as _).collect()
        }
        _ => {
            return Err(fault(
                line,
                "links are tables: write [[link]], and below it match = \"eth1\"".into(),
            ));
        }
    };
    let mut links = Links::default();
    for table in tables {
        let mut policy = LinkPolicy::default();
        let mut first = line;
        for (key, item) in table.iter() {
            let span = table.get_key_value(key).and_then(|(key, _)| key.span()).or_else(|| item.span());
            let at = span.map_or(line, |span| line_of(text, span.start));
            first = if policy == LinkPolicy::default() { at } else { first };
            let value =
                value_text(item).ok_or_else(|| fault(at, format!("{key} of a link takes no table")))?;
            policy.set(key, &value).map_err(|error| fault(at, error.to_string()))?;
        }
        links.push(policy).map_err(|error| fault(first, error.to_string()))?;
    }
    Ok(links)
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
    let refused = |e: SettingError| ConfigError { line: None, problem: e.to_string() };
    let mut settings = Settings::default();
    let setting = settings.set(name, value).map_err(refused)?;
    if setting.kind == Kind::Links {
        // Tables go to the end of the file, because TOML assigns each key below a table to the table. A commented-out key below a table
        // would also belong to the table once a user uncomments the key.
        document.remove(setting.name);
        return Ok(document.to_string() + &print_links(&settings.links));
    }
    let mut new = toml_value(setting, &settings);
    match document.get_mut(setting.name).and_then(Item::as_value_mut) {
        Some(old) => {
            *new.decor_mut() = old.decor().clone();
            *old = new;
        }
        None => match revive(text, setting.name, &new) {
            // Below a table, the uncommented key would belong to the table, and the text would not be valid.
            Some(revived) if parse_config(&revived).is_ok() => return Ok(revived),
            _ => document[setting.name] = Item::Value(new),
        },
    }
    Ok(document.to_string())
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
        | Kind::Interfaces => Value::from(text),
    }
}

/// Prints policies of links as tables, each after an empty line.
fn print_links(links: &Links) -> String {
    let tables = Item::ArrayOfTables(link_tables(links));
    DocumentMut::from(Table::from_iter([("link", tables)])).to_string()
}

/// Converts policies of links to TOML.
fn link_tables(links: &Links) -> ArrayOfTables {
    links
        .iter()
        .map(|policy| {
            let entries = policy.entries().into_iter().map(|(key, value)| {
                let number = value.parse::<i64>().ok().filter(|_| key == "heartbeat_s");
                (key, number.map_or_else(|| Value::from(value), Value::from))
            });
            let mut table = Table::from_iter(entries);
            table.decor_mut().set_prefix("\n");
            table
        })
        .collect()
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
    for setting in SETTINGS {
        text.push('\n');
        for line in wrap(setting.doc, 98) {
            let _ = writeln!(text, "# {line}");
        }
        if setting.kind == Kind::Links {
            let _ = writeln!(text, "# Takes tables, at the end of this file:");
            let sample = "wwan* name=lte use=backup heartbeat_s=30".parse().unwrap_or_default();
            let is_set = before_key.is_empty() && settings.links != Links::default();
            for line in print_links(if is_set { &settings.links } else { &sample }).trim_start().lines() {
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
    fn the_sample_of_a_link_in_the_printed_default_can_be_brought_to_life() {
        let text = default_config_text();
        let sample = text.find("# [[link]]").expect("a sample");
        let alive = text[..sample].to_owned() + &text[sample..].replace("# ", "");
        let links = parse_config(&alive).unwrap().links;
        assert_eq!(links.to_string(), "wwan* name=lte use=backup heartbeat_s=30");
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
}
