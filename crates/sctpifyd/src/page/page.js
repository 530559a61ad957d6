"use strict";
// Asks the daemon each second and draws what it says. Text is only ever set as text.

const place = (id) => document.getElementById(id);

function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children.map(String).map((text, i) => (children[i] instanceof Node ? children[i] : text)));
  return element;
}

function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (n >= 1024 && unit + 1 < units.length) { n /= 1024; unit += 1; }
  return (unit === 0 ? n : n.toFixed(1)) + " " + units[unit];
}

function ago(ms) {
  const s = Math.max(0, Math.round((Date.now() - ms) / 1000));
  return s < 60 ? s + " s ago" : s < 3600 ? Math.floor(s / 60) + " min ago" : Math.floor(s / 3600) + " h ago";
}

function table(headings, rows, none) {
  if (rows.length === 0) return make("p", { class: "none" }, none);
  const line = (tag, cells) => make("tr", {}, ...cells.map((cell) => make(tag, {}, cell)));
  return make("div", { class: "wide" }, make("table", {}, line("th", headings), ...rows.map((row) => line("td", row))));
}

function sums(status) {
  const c = status.counters;
  const all = [
    [status.connections.length, "connections over SCTP"], [c.connects_sctp, "connects over SCTP"],
    [c.connects_fallback, "fell back to TCP"], [c.accepts, "accepted"], [c.path_switches, "path switches"],
    [bytes(c.bytes_sent), "sent"], [bytes(c.bytes_received), "received"],
  ];
  place("sums").replaceChildren(...all.map(([n, name]) => make("div", { class: "sum" }, make("b", {}, n), make("span", {}, name))));
}

function lane(path, most) {
  const rtt = path.srtt_us === null ? "–" : (path.srtt_us / 1000).toFixed(1) + " ms";
  const names = "lane " + path.state + (path.in_use ? " in_use" : "");
  return make("div", { class: names },
    make("span", {}, (path.local ?? "any") + " → " + path.remote + " (" + path.carrier + ")"),
    make("span", {}, path.state.replace("_", " ") + (path.in_use ? ", in use" : "")),
    make("span", {}, rtt), make("span", {}, bytes(path.data_sent_bytes)),
    make("meter", { min: 0, max: most, value: path.data_sent_bytes }));
}

function lanes(status) {
  const boxes = status.associations.map((a) => {
    const most = Math.max(1, ...a.paths.map((path) => path.data_sent_bytes));
    const title = "Association " + a.id + ", " + a.state + ", ports " + a.local_port + " → " + a.peer_port;
    return make("div", { class: "box" }, make("div", {}, title), ...a.paths.map((path) => lane(path, most)));
  });
  place("lanes").replaceChildren(...(boxes.length ? boxes : [make("p", { class: "none" }, "No association now.")]));
}

function reason(value) {
  return typeof value === "string" ? value : Object.values(value).join(" ").replaceAll("_", " ");
}

function events(status) {
  const switches = status.recent_switches.map((s) => [s.when_unix_ms, "path switch",
    "association " + (s.association ?? "–") + ": " + (s.from_local ?? "any") + " → " + s.from_remote + " is left for " + (s.to_local ?? "any") + " → " + s.to_remote]);
  const fallbacks = status.recent_fallbacks.map((f) => [f.when_unix_ms, "plain TCP", f.destination + ": " + reason(f.reason)]);
  const all = switches.concat(fallbacks).sort((a, b) => b[0] - a[0]);
  place("events").replaceChildren(table(["When", "What", "Where"], all.map(([when, ...rest]) => [ago(when), ...rest]), "None yet."));
}

function rules(report) {
  const rows = report.rules.map((r) => [r.chain + " " + r.policy, r.number, r.address ?? "any", r.ports ?? "all", r.hits, r.name ?? ""]);
  const defaults = report.defaults.map((d) => [d.chain + " " + d.policy, "default", "any", "all", d.hits, ""]);
  place("rules").replaceChildren(table(["Chain", "Number", "Address", "Ports", "Hits", "Name"], rows.concat(defaults), "None."));
  const learned = report.learned.map((l) => [l.host + (l.port ? ":" + l.port : ""), l.state, l.tally ? l.tally.calls_today : "", l.tally ? l.tally.failures_today : ""]);
  place("learned").replaceChildren(table(["Destination", "State", "Calls today", "Failed"], learned, "Nothing learned."));
}

async function ask(name) {
  const answer = await fetch(name, { cache: "no-store" });
  if (!answer.ok) throw new Error(answer.status + " " + answer.statusText);
  return answer.json();
}

async function draw() {
  try {
    const status = await ask("status.json");
    sums(status); lanes(status); events(status); rules(await ask("rules.json"));
    const switched = status.enabled ? (status.draining ? "draining" : "enabled") : "DISABLED";
    place("state").textContent = "version " + status.version + ", up " + status.uptime_s + " s, " + switched;
    document.body.dataset.drawn = "yes";
  } catch (error) {
    place("state").textContent = "no answer from the daemon: " + error.message;
  }
  setTimeout(draw, 1000);
}

draw();
