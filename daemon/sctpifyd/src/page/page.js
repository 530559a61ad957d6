"use strict";
// The daemon's status, refreshed each second with the functions of common.js, and the history of links, drawn by uPlot.

// Seconds that the charts show, by their name after # in the address, for bookmarks.
const RANGES = { "60s": 60, "1h": 3600, "24h": 86400 };
const HISTORY_EVERY_MS = 20000;
const CHART_HEIGHT = 40;
// Connections that the page lists.
const CONNECTIONS_SHOWN = 50;

function sums(status) {
  const c = status.counters;
  drawSums("sums", [
    [status.connections.length, "connections over SCTP"], [c.connects_sctp, "connects over SCTP"],
    [c.connects_fallback, "fell back to TCP"], [c.accepts, "accepted"], [c.path_switches, "path switches"],
    [bytes(c.bytes_sent), "sent"], [bytes(c.bytes_received), "received"],
  ]);
}

function linkName(link) {
  return link.name ? link.interface + " (" + link.name + ")" : link.interface ?? "unknown";
}

function linkKey(link) {
  return link.peer + " " + (link.interface ?? "");
}

// One sentence about a peer: its working links, the link that carries data, and whether its key is known.
function sentence(peer, links, associations) {
  const own = associations.filter((a) => a.peer === peer);
  const name = own.map((a) => a.encryption?.name).find(Boolean);
  const up = links.filter((l) => l.state === "up"), down = links.filter((l) => l.state === "down");
  const names = (some) => some.map(linkName).join(" and ");
  const work = up.length === links.length ? (links.length === 1 ? "its link works" : (links.length === 2 ? "both" : "all " + links.length) + " links work")
    : up.length === 0 ? "NO LINK WORKS" : up.length + " of " + links.length + " links work";
  const failed = down.length && up.length ? ", " + names(down) + " failed" : "";
  const used = links.filter((l) => l.in_use && l.state === "up");
  const data = used.length ? "; data uses " + names(used) : "";
  const clear = own.filter((a) => !a.encryption).length;
  const isVerified = own.every((a) => ["paired", "configured"].includes(a.encryption?.by));
  const keys = clear === own.length ? "; not encrypted" : clear > 0 ? "; partly encrypted" : isVerified ? "; encrypted, peer verified" : "; encrypted, peer not verified";
  return (name ? name + " (" + peer + ")" : peer) + ": " + work + failed + data + keys + ".";
}

// The last 61 readings of each link, one per second.
const recent = new Map();

function noteRecent(links) {
  const now = Date.now() / 1000;
  for (const link of links) {
    const readings = recent.get(linkKey(link)) ?? [];
    readings.push({ now, sent: link.sent_bytes, received: link.received_bytes, srtt: link.state === "up" ? link.srtt_us : null });
    recent.set(linkKey(link), readings.filter((r) => r.now > now - 61));
  }
  for (const [key, readings] of recent) if (readings.at(-1).now < now - 61) recent.delete(key);
}

// Columns of a chart: times, rates sent and received in bit/s, round-trip times in ms. A gap has nulls.
function columns(key) {
  const [times, sent, received, srtt] = [[], [], [], []];
  const add = (at, bitsSent, bitsReceived, us) => {
    times.push(at); sent.push(bitsSent); received.push(bitsReceived); srtt.push(us === null ? null : us / 1000);
  };
  if (range === "60s") {
    const readings = recent.get(key) ?? [];
    for (let i = 1; i < readings.length; i += 1) {
      const [a, b] = [readings[i - 1], readings[i]], s = Math.max(b.now - a.now, 0.001);
      if (s > 3) add(a.now + 1, null, null, null);
      add(b.now, Math.max(0, b.sent - a.sent) * 8 / s, Math.max(0, b.received - a.received) * 8 / s, b.srtt);
    }
    return [times, sent, received, srtt];
  }
  const step = range === "1h" ? 60 : 600;
  const samples = history24[range === "1h" ? "hour" : "day"].get(key);
  (samples?.end_s ?? []).forEach((end, i) => {
    if (i > 0 && end - samples.end_s[i - 1] > step) add(samples.end_s[i - 1] + step, null, null, null);
    add(end, samples.sent_bytes[i] * 8 / step, samples.received_bytes[i] * 8 / step, samples.srtt_us[i]);
  });
  return [times, sent, received, srtt];
}

let range = Object.keys(RANGES).find((name) => location.hash === "#" + name) ?? "60s";
const history24 = { hour: new Map(), day: new Map(), read: 0 };

async function readHistory() {
  if (Date.now() - history24.read < HISTORY_EVERY_MS) return;
  const report = await ask("history.json");
  history24.read = Date.now();
  history24.hour = new Map(report.links.map((l) => [linkKey(l), l.hour]));
  history24.day = new Map(report.links.map((l) => [linkKey(l), l.day]));
}

// A small chart with its largest value beside it.
class Chart {
  constructor(names, write) {
    this.write = write;
    this.names = names;
    this.text = make("span", { class: "most" });
    this.place = make("div", { class: "chart", role: "img" });
    this.box = make("div", { class: "charted" }, this.place, this.text);
    const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
    const lines = [{ stroke: () => colour("--line-a"), width: 1.5 }, { stroke: () => colour("--line-b"), width: 1.5 }];
    this.plot = new uPlot({
      width: 160, height: CHART_HEIGHT, padding: [2, 0, 2, 0], legend: { show: false }, cursor: { show: false },
      axes: [{ show: false }, { show: false }],
      scales: {
        x: { time: false, range: () => [Date.now() / 1000 - RANGES[range], Date.now() / 1000] },
        y: { range: (_, low, high) => [0, high > 0 ? high * 1.05 : 1] },
      },
      series: [{}, ...names.map((_, i) => ({ ...lines[i], points: { show: false } }))],
    }, [[], ...names.map(() => [])], this.place);
  }

  draw(times, ...values) {
    const width = this.place.clientWidth;
    if (width > 0 && width !== this.plot.width) this.plot.setSize({ width, height: CHART_HEIGHT });
    this.plot.setData([times, ...values]);
    const most = values.map((all) => Math.max(0, ...all.filter((value) => value !== null)));
    const isEmpty = values.every((all) => all.every((value) => value === null));
    this.text.textContent = isEmpty ? "no data" : "≤ " + this.write(Math.max(...most));
    const said = this.names.map((name, i) => name + " at most " + this.write(most[i])).join(", ");
    this.place.setAttribute("aria-label", isEmpty ? "no data in the last " + written(range) : "last " + written(range) + ": " + said);
  }
}

const milliseconds = (ms) => ms.toFixed(ms < 10 ? 1 : 0) + " ms";

// The row of a link, which is kept from one refresh to the next.
class LinkRow {
  constructor() {
    const cell = (name) => make("span", { class: name });
    [this.name, this.state, this.rtt, this.total] = ["name", "state", "rtt", "total"].map(cell);
    this.rates = new Chart(["sent", "received"], bits);
    this.delays = new Chart(["round trip"], milliseconds);
    this.box = make("div", { class: "link" }, this.name, this.state, this.rtt, this.total, this.rates.box, this.delays.box);
  }

  draw(link) {
    const colours = { up: "active", down: "inactive", unproven: "unconfirmed" };
    this.box.className = "link path " + colours[link.state] + (link.in_use ? " in_use" : "");
    this.name.textContent = linkName(link);
    this.state.textContent = (link.state === "down" ? "DOWN" : link.state) + ", " + link.use + (link.in_use ? ", in use" : "");
    this.rtt.textContent = link.srtt_us === null || link.state === "down" ? "–" : milliseconds(link.srtt_us / 1000);
    this.total.textContent = bytes(link.sent_bytes) + " sent, " + bytes(link.received_bytes) + " received";
    const [times, sent, received, srtt] = columns(linkKey(link));
    this.rates.draw(times, sent, received);
    this.delays.draw(times, srtt);
  }
}

const rows = new Map();

function links(status) {
  const peers = new Map();
  for (const link of status.links) peers.set(link.peer, [...(peers.get(link.peer) ?? []), link]);
  const boxes = [...peers].map(([peer, of]) => {
    const lines = of.map((link) => {
      if (!rows.has(linkKey(link))) rows.set(linkKey(link), new LinkRow());
      return rows.get(linkKey(link)).box;
    });
    return make("div", { class: "box" }, make("p", { class: "lead" }, sentence(peer, of, status.associations)), ...lines);
  });
  const known = new Set(status.links.map(linkKey));
  for (const key of rows.keys()) if (!known.has(key)) rows.delete(key);
  const caps = status.link_caps.map((c) => make("p", { class: c.is_reached ? "cap warning" : "cap" },
    linkName(c) + ": " + (c.bytes / 1e6).toFixed(1) + " of " + (c.cap_bytes / 1e6).toFixed(1) + " MB since " + c.since +
    (c.is_reached ? "; the cap is reached, use " + c.at_cap : "")));
  const empty = none("No peer is connected. On a host that a rule names, connect to it; `sctpify explain HOST:PORT` tells how a connection would be carried.");
  place("links").replaceChildren(...(boxes.length ? boxes : [empty]), ...caps);
  // Charts measure their width in the document.
  for (const link of status.links) rows.get(linkKey(link)).draw(link);
}

// Separates the number from its unit: 24 h.
const written = (name) => name.replace(/(\D)/, " $1");

function chooseRange() {
  const buttons = Object.keys(RANGES).map((name) => {
    const button = make("button", { type: "button", "aria-pressed": name === range }, written(name));
    button.addEventListener("click", () => { range = name; history.replaceState(null, "", "#" + name); chooseRange(); place("range").querySelector("[aria-pressed=true]").focus(); });
    return button;
  });
  place("range").replaceChildren(...buttons);
}

function connections(status) {
  const shown = status.connections.slice(-CONNECTIONS_SHOWN).reverse();
  const lines = shown.map((c) => [c.role === "client" ? "to " + c.peer : "from " + c.peer, c.local, c.carrier, bytes(c.bytes_sent), bytes(c.bytes_received), lasting(c.age_s)]);
  const left = status.connections.length - shown.length;
  place("connections").replaceChildren(table(["Peer", "Own address", "Carrier", "Sent", "Received", "Age"], lines, "No connections over SCTP."),
    ...(left > 0 ? [none(left + " older ones are not listed; `sctpify status` lists all.")] : []));
}

function associations(status) {
  const boxes = status.associations.slice(0, CONNECTIONS_SHOWN).map((a) => {
    const title = "Association " + a.id + ", " + a.state + ", ports " + a.local_port + " → " + a.peer_port;
    return make("div", { class: "box" }, make("div", {}, title), ...pathBoxes(a.paths));
  });
  place("associations").replaceChildren(...(boxes.length ? boxes : [none("No associations.")]));
}

// The words of a reason, which may contain another one.
function reason(value) {
  return typeof value === "object" && value !== null ? Object.values(value).map(reason).join(" ") : String(value).replaceAll("_", " ");
}

function events(status) {
  const ends = (p) => (p.interface ? linkName(p) + " " : "") + (p.local ?? "any") + " → " + p.remote;
  const kinds = { switched: "data moved", down: "link failed", up: "link works again" };
  const causes = { loss: (e) => e.percent + " % lost", delay: (e) => e.delay_ms + " ms late" };
  const cause = (e) => causes[e.reason] ? causes[e.reason](e) : e.reason.replaceAll("_", " ");
  const left = (e) => e.links_up + " of " + e.links + " links work";
  const changes = status.recent_events.map((e) => [e.when_unix_ms, kinds[e.event],
    (e.event === "switched" ? ends(e.from) + " replaced by " + ends(e.to) : ends(e.path)) + ": " + cause(e) + "; " + left(e)]);
  const fallbacks = status.recent_fallbacks.map((f) => [f.when_unix_ms, "plain TCP", f.destination + ": " + reason(f.reason)]);
  const all = changes.concat(fallbacks).sort((a, b) => b[0] - a[0]);
  place("events").replaceChildren(table(["Time", "Event", "Details"], all.map(([when, ...rest]) => [ago(when), ...rest]), "None yet."));
}

function rules(report) {
  const all = report.rules.map((r) => [r.chain + " " + r.policy + (r.declared ? ", declared" : ""), r.number, r.address ?? "any", r.ports ?? "all", r.hits, r.name ?? ""]);
  const defaults = report.defaults.map((d) => [d.chain + " " + d.policy, "default", "any", "all", d.hits, ""]);
  place("rules").replaceChildren(table(["Chain", "Number", "Address", "Ports", "Hits", "Name"], all.concat(defaults), "None."));
  const learned = report.learned.map((l) => [l.host + (l.port ? ":" + l.port : ""), l.state, l.tally ? l.tally.calls_today : "", l.tally ? l.tally.failures_today : ""]);
  place("learned").replaceChildren(table(["Destination", "State", "Calls today", "Failed"], learned, "Nothing learned."));
}

// uplot.js has run by then.
addEventListener("DOMContentLoaded", () => {
  chooseRange();
  live("the daemon", async () => {
    const status = await ask("status.json");
    await readHistory();
    noteRecent(status.links);
    sums(status); links(status); connections(status); associations(status); events(status); rules(await ask("rules.json"));
    const switched = status.enabled ? (status.draining ? "draining" : "enabled") : "DISABLED";
    return "version " + status.version + ", up " + lasting(status.uptime_s) + ", " + switched;
  });
});
