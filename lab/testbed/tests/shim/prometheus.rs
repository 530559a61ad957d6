//! Tests of the metrics that a daemon gives to other hosts. A real Prometheus collects the metrics, and
//! evaluates the alert rules and the dashboard of `packaging/prometheus`.

use crate::world::{BULK, LIMIT, PORT, TwoUplinks};
use serde_json::Value;
use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use testbed::process::wait_for;
use testbed::{Daemon, Host, Lab, Offloads, Process, Programs, skip};

const METRICS_PORT: u16 = 9898;
const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// Two uplinks, and a client's daemon that gives its metrics to other hosts.
struct Watched {
    world: TwoUplinks,
    /// The file with the token.
    token: PathBuf,
    _dir: tempfile::TempDir,
}

impl Watched {
    fn new() -> Watched {
        let (dir, token) = token_file();
        let config =
            format!("metrics_listen = \"0.0.0.0:{METRICS_PORT}\"\nmetrics_token = \"{}\"\n", token.display());
        Watched { world: TwoUplinks::with(&config), token, _dir: dir }
    }

    /// Returns the address and port of the client's metrics, on the client's second uplink.
    fn target(&self) -> String {
        format!("{}:{METRICS_PORT}", self.world.uplinks[1].left_v4())
    }

    /// Sends a request from the server's host, and returns the status line, the headers and the body.
    fn request(&self, path: &str, header: &str) -> String {
        let url = format!("http://{}{path}", self.target());
        let curl = ["-s", "-i", "--max-time", "10", "-H", header, &url];
        self.world.beta.tool("curl", &curl).unwrap()
    }
}

/// Creates a directory with a token file. Returns the directory and the path of the file.
fn token_file() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let token = dir.path().join("token");
    std::fs::write(&token, TOKEN).unwrap();
    std::fs::set_permissions(&token, PermissionsExt::from_mode(0o600)).unwrap();
    (dir, token)
}

/// Returns the path of a file of `packaging/prometheus`.
fn packaged(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/prometheus").join(name)
}

fn read(name: &str) -> String {
    std::fs::read_to_string(packaged(name)).unwrap()
}

/// Returns the names of metrics in a text, without the suffix `_bucket` of a histogram's series.
fn names_in(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let names = words.filter(|word| word.starts_with("sctpify_"));
    names.map(|name| name.strip_suffix("_bucket").unwrap_or(name).to_owned()).collect()
}

/// Returns the expressions of all panels of the dashboard. The dashboard's variables have values that select
/// all hosts and all peers.
fn expressions() -> Vec<String> {
    let dashboard: Value = serde_json::from_str(&read("sctpify-dashboard.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    let texts = targets.map(|target| target["expr"].as_str().unwrap());
    let fixed = [("$instance", ".*"), ("$peer", ".*"), ("$__rate_interval", "10s"), ("$__range", "1m")];
    texts
        .map(|text| fixed.iter().fold(text.to_owned(), |text, (name, value)| text.replace(name, value)))
        .collect()
}

/// A Prometheus on the server's host. It collects the client's metrics each second.
struct Prometheus<'a> {
    host: &'a Host,
    _process: Process,
}

impl<'a> Prometheus<'a> {
    /// Starts Prometheus with these alert rules. If Prometheus is missing, skips the test and returns `None`.
    fn start(watched: &'a Watched, alerts: &str) -> Option<Prometheus<'a>> {
        let host = &watched.world.beta;
        if host.tool("prometheus", &["--version"]).is_err() {
            skip("Prometheus is missing (scripts/setup.sh)");
            return None;
        }
        let dir = host.dir().unwrap();
        std::fs::write(dir.join("alerts.yml"), alerts).unwrap();
        let config = format!(
            "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: [alerts.yml]\nscrape_configs:\n  \
             - job_name: sctpify\n    authorization: {{credentials_file: {}}}\n    static_configs: [{{targets: ['{}']}}]\n",
            watched.token.display(),
            watched.target()
        );
        std::fs::write(dir.join("prometheus.yml"), config).unwrap();
        let mut command = host.command("prometheus");
        command.arg(format!("--config.file={}", dir.join("prometheus.yml").display()));
        command.arg(format!("--storage.tsdb.path={}", dir.join("series").display()));
        command.arg("--web.listen-address=127.0.0.1:9090");
        let mut process = host.spawn("prometheus", command).unwrap();
        let is_ready = |process: &Process| process.stderr().contains("Server is ready");
        process.wait_until("Prometheus is ready", LIMIT, is_ready).unwrap();
        Some(Prometheus { host, _process: process })
    }

    /// Evaluates an expression.
    fn query(&self, expression: &str) -> Value {
        let query = format!("query={expression}");
        let curl =
            ["-s", "--max-time", "10", "--data-urlencode", &query, "http://127.0.0.1:9090/api/v1/query"];
        serde_json::from_str(&self.host.tool("curl", &curl).unwrap()).unwrap()
    }

    /// Returns the current value of an expression, or `None` if the expression has no series. The expression
    /// must not have several series.
    fn value(&self, expression: &str) -> Option<String> {
        self.query(expression)["data"]["result"][0]["value"][1].as_str().map(str::to_owned)
    }
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn other_hosts_get_the_metrics_with_the_token_and_nothing_else() {
    let watched = Watched::new();
    let bearer = format!("Authorization: Bearer {TOKEN}");
    let metrics = watched.request("/metrics", &bearer);
    assert!(metrics.starts_with("HTTP/1.1 200") && metrics.contains("\nsctpify_build_info{"), "{metrics}");
    for wrong in ["Accept: */*", "Authorization: Bearer 0123456789abcdef0123456789abcdeF"] {
        let refused = watched.request("/metrics", wrong);
        assert!(
            refused.starts_with("HTTP/1.1 401") && refused.contains("WWW-Authenticate: Bearer"),
            "{refused}"
        );
        assert!(!refused.contains("sctpify_"), "{refused}");
    }
    for path in ["/", "/status.json", "/rules.json", "/history.json", "/page.js", "/page.css", "/common.js"] {
        let missing = watched.request(path, &bearer);
        assert!(missing.starts_with("HTTP/1.1 404"), "{path}: {missing}");
    }
    let daemon = &watched.world.alphas;
    assert!(!daemon.log().contains(TOKEN) && !daemon.sctpify(&["get"]).unwrap().stdout.contains(TOKEN));
}

/// Returns the capabilities of the packaged unit, in the form of setpriv(1).
fn capabilities_of_unit() -> String {
    let unit = std::fs::read_to_string(packaged("../sctpifyd.service")).unwrap();
    let line = unit.lines().find_map(|line| line.strip_prefix("CapabilityBoundingSet=")).unwrap();
    let names =
        line.split(' ').map(|name| format!(",+{}", name.strip_prefix("CAP_").unwrap().to_lowercase()));
    names.fold("-all".to_owned(), |all, name| all + &name)
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn metrics_work_with_the_units_capabilities_and_an_address_added_after_the_start() {
    let lab = Lab::new().unwrap();
    let [alpha, beta] = ["alpha", "beta"].map(|name| lab.host(name).unwrap());
    let link = lab.join(&alpha, &beta, 1, Offloads::On).unwrap();
    let (address, interface) = (link.left_v4().to_string(), link.name());
    let with_prefix = format!("{address}/24");
    alpha.ip(&["address", "del", &with_prefix, "dev", &interface]).unwrap();
    let (_dir, token) = token_file();
    let config =
        format!("metrics_listen = \"{address}:{METRICS_PORT}\"\nmetrics_token = \"{}\"\n", token.display());
    let programs = Programs::find().unwrap();
    let daemon =
        Daemon::start_with_capabilities(&alpha, &programs, &config, &capabilities_of_unit()).unwrap();
    alpha.ip(&["address", "add", &with_prefix, "dev", &interface]).unwrap();
    let url = format!("http://{address}:{METRICS_PORT}/metrics");
    let bearer = format!("Authorization: Bearer {TOKEN}");
    let metrics = beta.tool("curl", &["-s", "--max-time", "10", "-H", &bearer, &url]).unwrap();
    assert!(metrics.contains("\nsctpify_build_info{"), "{metrics} {}", daemon.log());
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn without_a_token_no_other_host_gets_metrics_and_doctor_names_the_remedy() {
    let world = TwoUplinks::with(&format!("metrics_listen = \"0.0.0.0:{METRICS_PORT}\"\n"));
    let url = format!("http://{}:{METRICS_PORT}/metrics", world.uplinks[0].left_v4());
    let mut curl = world.beta.command("curl");
    curl.args(["-s", "--max-time", "5", &url]);
    let refused = world.beta.run("curl", curl, LIMIT).unwrap();
    assert_eq!(refused.status.code(), Some(7), "{refused:?}");
    let doctor = world.alphas.sctpify(&["doctor"]).unwrap().stdout;
    assert!(doctor.contains("needs a token") && doctor.contains("metrics_token=FILE"), "{doctor}");
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn prometheus_reports_a_lost_link_and_draws_the_dashboard() {
    let watched = Watched::new();
    // In this test, an alert's condition must hold for one second instead of a minute before the alert fires.
    let alerts = read("sctpify-alerts.yml").replace("for: 1m", "for: 1s");
    let Some(prometheus) = Prometheus::start(&watched, &alerts) else { return };
    let world = &watched.world;
    let _receiver = world.serve(BULK, &["receive", &PORT.to_string()]);
    let mut send = world.alpha.command(BULK);
    send.args(["send-paced", &world.target(), "120", "1000", "1000"]);
    let _sender = world.alpha.spawn("sender", send).unwrap();
    let links_up = || prometheus.value("count(sctpify_peer_link_up == 1)");
    assert!(wait_for(LIMIT, || links_up().as_deref() == Some("2")), "{:?}", links_up());
    let metrics = watched.request("/metrics", &format!("Authorization: Bearer {TOKEN}"));
    let known = names_in(&metrics);
    for file in ["sctpify-alerts.yml", "sctpify-alerts.test.yml", "sctpify-dashboard.json"] {
        let unknown: Vec<String> = names_in(&read(file)).difference(&known).cloned().collect();
        assert!(unknown.is_empty(), "{file} has metrics that the daemon has not: {unknown:?}");
    }
    let firing = || prometheus.value("count(ALERTS{alertstate=\"firing\"})");
    assert_eq!(firing(), None, "{}", prometheus.query("ALERTS"));
    world.alpha.ip(&["link", "set", &world.uplinks[0].name(), "down"]).unwrap();
    let lost = "ALERTS{alertname=\"SctpifyRedundancyLost\",alertstate=\"firing\"}";
    assert!(
        wait_for(LIMIT, || prometheus.value(lost).is_some()),
        "{}",
        prometheus.query("sctpify_peer_link_up")
    );
    let mut drawn = 0;
    let expressions = expressions();
    for expression in &expressions {
        let answer = prometheus.query(expression);
        assert_eq!(answer["status"], "success", "{expression}: {answer}");
        drawn += usize::from(!answer["data"]["result"].as_array().unwrap().is_empty());
    }
    // No connection falls back in this test, so only the panel of fallbacks has no data.
    assert_eq!(drawn + 1, expressions.len(), "panels without data");
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn promtool_accepts_the_alert_rules_their_examples_and_the_metrics() {
    let watched = Watched::new();
    let host = &watched.world.beta;
    if host.tool("promtool", &["--version"]).is_err() {
        return skip("promtool is missing (scripts/setup.sh)");
    }
    for (verb, file) in [("check", "sctpify-alerts.yml"), ("test", "sctpify-alerts.test.yml")] {
        host.tool("promtool", &[verb, "rules", packaged(file).to_str().unwrap()]).unwrap();
    }
    let metrics = watched.request("/metrics", &format!("Authorization: Bearer {TOKEN}"));
    let body = host.dir().unwrap().join("metrics");
    std::fs::write(&body, metrics.split_once("\r\n\r\n").unwrap().1).unwrap();
    let mut check = host.command("promtool");
    check.args(["check", "metrics"]).stdin(std::fs::File::open(&body).unwrap());
    let checked = host.run("promtool", check, LIMIT).unwrap();
    assert!(checked.status.success() && checked.stderr.is_empty(), "{checked:?}");
}
