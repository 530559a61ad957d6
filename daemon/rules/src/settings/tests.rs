//! Tests the table of settings: its defaults, ranges and names.

use super::*;

#[test]
fn every_default_is_a_value_its_setting_takes_and_reads_back() {
    for setting in SETTINGS {
        let mut settings = Settings::default();
        setting.change(&mut settings, &setting.default_value()).expect(setting.name);
        assert_eq!(settings, Settings::default(), "{}", setting.name);
    }
}

#[test]
fn both_ends_of_a_range_are_taken_and_the_values_beyond_refused() {
    for setting in SETTINGS {
        let Kind::Number { min, max, .. } = setting.kind else { continue };
        let mut settings = Settings::default();
        assert!(setting.change(&mut settings, &min.to_string()).is_ok(), "{}", setting.name);
        assert!(setting.change(&mut settings, &max.to_string()).is_ok(), "{}", setting.name);
        assert!(setting.change(&mut settings, &(u64::from(max) + 1).to_string()).is_err());
        assert!(setting.change(&mut settings, &(i64::from(min) - 1).to_string()).is_err());
    }
}

#[test]
fn a_store_is_nothing_or_a_url_of_redis() {
    let mut settings = Settings::default();
    for good in ["redis://192.0.2.9/0", "rediss://r.example/0", "redis+unix:///run/redis.sock", ""] {
        assert!(settings.set("learned_store", good).is_ok() && settings.learned_store == good, "{good}");
    }
    for bad in ["192.0.2.9", "http://192.0.2.9", "redis://a b", &format!("redis://{}", "x".repeat(600))] {
        assert!(settings.set("learned_store", bad).is_err(), "{bad}");
    }
}

#[test]
fn an_address_to_listen_on_has_a_port() {
    let mut settings = Settings::default();
    for good in ["192.0.2.7:9897", "[2001:db8::7]:1", "0.0.0.0:65535", ""] {
        settings.set("metrics_listen", good).unwrap();
        assert_eq!(settings.get("metrics_listen").unwrap(), good);
    }
    for bad in
        ["9897", ":9897", "192.0.2.7", "192.0.2.7:0", "2001:db8::7:9897", "localhost:9897", "192.0.2.7:65536"]
    {
        let refusal = settings.set("metrics_listen", bad).unwrap_err().to_string();
        assert!(refusal.contains("an IP address with a port"), "{bad}: {refusal}");
    }
}

#[test]
fn settings_of_confinement_keys_stores_and_metrics_are_reserved_for_root() {
    let roots: Vec<&str> = SETTINGS.iter().filter(|s| s.is_roots()).map(|s| s.name).collect();
    for name in [
        "confine_capabilities",
        "confine_system_calls",
        "confine_files",
        "worker_user",
        "peer_keys",
        "peer_key_required",
        "learned_store",
        "learned_store_roots",
        "metrics_listen",
        "metrics_token",
    ] {
        assert!(roots.contains(&name), "{name}");
    }
    assert!(!roots.contains(&"default_remote_enable"));
}

#[test]
fn settings_that_need_a_restart_do_not_take_effect_before_it() {
    let mut changed = Settings::default();
    changed.set("udp_port", "9900").unwrap();
    changed.set("race_timer_ms", "100").unwrap();
    let in_force = changed.until_restart(&Settings::default());
    assert_eq!((in_force.udp_port, in_force.race_timer_ms), (9899, 100));
}

#[test]
fn the_papers_full_names_are_understood() {
    let mut settings = Settings::default();
    settings.set("net.inet.sctp.shim.default_local_enable", "1").unwrap();
    assert!(settings.default_local_enable);
}

#[test]
fn an_unknown_name_is_refused_with_the_nearest() {
    let text = Settings::default().get("default_remote_enabled").unwrap_err().to_string();
    assert_eq!(text, "unknown setting `default_remote_enabled`; did you mean `default_remote_enable`?");
}

#[test]
fn boolean_settings_accept_several_words() {
    for (text, value) in
        [("1", true), ("on", true), ("TRUE", true), ("7", true), ("0", false), ("off", false)]
    {
        assert_eq!(parse_bool(text), Some(value), "{text}");
    }
    assert_eq!(parse_bool("maybe"), None);
}

#[test]
fn by_default_no_listener_is_reachable_and_no_connection_is_touched() {
    let settings = Settings::default();
    assert!(!settings.default_local_enable && !settings.default_remote_enable);
}
