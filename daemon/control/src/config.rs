//! The configuration file as text: TOML, one key per setting, documented from the table of settings.

use std::fmt::Write;

use rules::{Kind, SETTINGS, Setting, SettingError, Settings, find_setting};
use toml_edit::{Document, DocumentMut, Item, Value};

/// A fault in a configuration file, and its place.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{}{problem}", .line.map(|l| format!("line {l}: ")).unwrap_or_default())]
pub struct ConfigError {
    /// The line, from 1; none if the problem is not in the file.
    pub line: Option<usize>,
    /// The fault there.
    pub problem: String,
}

/// Reads a configuration file. Settings that it does not name keep their defaults.
///
/// # Errors
/// The first faulty line: not TOML, an unknown key, a value out of range.
pub fn parse_config(text: &str) -> Result<Settings, ConfigError> {
    let document = Document::parse(text).map_err(|e| not_toml(text, &e))?;
    let mut settings = Settings::default();
    for (name, item) in document.iter() {
        let span = document.get_key_value(name).and_then(|(key, _)| key.span()).or_else(|| item.span());
        let line = line_of(text, span.map_or(0, |s| s.start));
        let at = |problem: String| ConfigError { line, problem };
        let setting = find_key(name).map_err(at)?;
        let value = value_text(item).ok_or_else(|| at(format!("{name} takes {}", setting.kind)))?;
        setting.change(&mut settings, &value).map_err(|e| at(e.to_string()))?;
    }
    Ok(settings)
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

/// Converts a plain TOML value to the text that settings read; `None` for tables, arrays, dates and fractions.
fn value_text(item: &Item) -> Option<String> {
    match item.as_value()? {
        Value::Boolean(b) => Some(b.value().to_string()),
        Value::Integer(i) => Some(i.value().to_string()),
        Value::String(s) => Some(s.value().clone()),
        _ => None,
    }
}

/// Changes one setting in the text of a configuration file. Comments and the order of keys are kept; a key that is commented out
/// (`# udp_port = 9899`) is activated in its place.
///
/// # Errors
/// When the text is not TOML, or the setting does not accept the value.
pub fn set_in_config(text: &str, name: &str, value: &str) -> Result<String, ConfigError> {
    let mut document: DocumentMut = text.parse().map_err(|e| not_toml(text, &e))?;
    let refused = |e: SettingError| ConfigError { line: None, problem: e.to_string() };
    let mut settings = Settings::default();
    let setting = settings.set(name, value).map_err(refused)?;
    let mut new = toml_value(setting, &settings);
    match document.get_mut(setting.name).and_then(Item::as_value_mut) {
        Some(old) => {
            *new.decor_mut() = old.decor().clone();
            *old = new;
        }
        None => match revive(text, setting.name, &new) {
            Some(revived) => return Ok(revived),
            None => document[setting.name] = Item::Value(new),
        },
    }
    Ok(document.to_string())
}

/// Replaces the commented-out key by the key with this value, if the text has one.
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
        Kind::Word(_) | Kind::Url(_) | Kind::Path | Kind::User | Kind::Weights | Kind::Interfaces => {
            Value::from(text)
        }
    }
}

/// Prints these settings as a configuration file, each key with its documentation. It reads back as the same settings.
pub fn print_config(settings: &Settings) -> String {
    print(settings, "")
}

/// Prints a configuration file that changes nothing: every key with its documentation and its default, commented out.
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
    fn what_is_not_toml_names_its_line() {
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
