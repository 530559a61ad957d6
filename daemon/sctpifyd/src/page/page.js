"use strict";
// The daemon's status, refreshed each second with the functions of common.js.

function sums(status) {
  const c = status.counters;
  const all = [
    [status.connections.length, "connections over SCTP"], [c.connects_sctp, "connects over SCTP"],
    [c.connects_fallback, "fell back to TCP"], [c.accepts, "accepted"], [c.path_switches, "path switches"],
    [bytes(c.bytes_sent), "sent"], [bytes(c.bytes_received), "received"],
  ];
  drawSums("sums", all);
}

function linkName(link) {
  return link.name ? link.interface + " (" + link.name + ")" : link.interface ?? "unknown";
}

function links(status) {
  const colours = { up: "active", down: "inactive", unproven: "unconfirmed" };
  const boxes = status.links.map((l) => make("div", { class: "path " + colours[l.state] + (l.in_use ? " in_use" : "") },
    make("span", {}, linkName(l) + " to " + l.peer),
    make("span", {}, (l.state === "down" ? "DOWN" : l.state) + ", " + l.use + (l.in_use ? ", in use" : "")),
    make("span", {}, l.srtt_us === null ? "-" : (l.srtt_us / 1000).toFixed(1) + " ms"),
    make("span", {}, bytes(l.sent_bytes) + " sent, " + bytes(l.received_bytes) + " received")));
  const megabytes = (count) => (count / 1e6).toFixed(1) + " MB";
  const caps = status.link_caps.map((c) => make("p", c.is_reached ? { class: "warning" } : {},
    linkName(c) + ": " + megabytes(c.bytes) + " of " + megabytes(c.cap_bytes) + " since " + c.since +
    (c.is_reached ? "; the cap is reached, use " + c.at_cap : "")));
  const shown = boxes.length ? make("div", { class: "box" }, ...boxes) : none("No peer is connected.");
  place("links").replaceChildren(shown, ...caps);
}

function associations(status) {
  const boxes = status.associations.map((a) => {
    const title = "Association " + a.id + ", " + a.state + ", ports " + a.local_port + " → " + a.peer_port;
    return make("div", { class: "box" }, make("div", {}, title), ...pathBoxes(a.paths));
  });
  place("associations").replaceChildren(...(boxes.length ? boxes : [none("No associations.")]));
}

function reason(value) {
  return typeof value === "string" ? value : Object.values(value).join(" ").replaceAll("_", " ");
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
  const rows = report.rules.map((r) => [r.chain + " " + r.policy + (r.declared ? ", declared" : ""), r.number, r.address ?? "any", r.ports ?? "all", r.hits, r.name ?? ""]);
  const defaults = report.defaults.map((d) => [d.chain + " " + d.policy, "default", "any", "all", d.hits, ""]);
  place("rules").replaceChildren(table(["Chain", "Number", "Address", "Ports", "Hits", "Name"], rows.concat(defaults), "None."));
  const learned = report.learned.map((l) => [l.host + (l.port ? ":" + l.port : ""), l.state, l.tally ? l.tally.calls_today : "", l.tally ? l.tally.failures_today : ""]);
  place("learned").replaceChildren(table(["Destination", "State", "Calls today", "Failed"], learned, "Nothing learned."));
}

live("the daemon", async () => {
  const status = await ask("status.json");
  sums(status); links(status); associations(status); events(status); rules(await ask("rules.json"));
  const switched = status.enabled ? (status.draining ? "draining" : "enabled") : "DISABLED";
  return "version " + status.version + ", up " + status.uptime_s + " s, " + switched;
});
