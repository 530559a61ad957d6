"use strict";
// The proxy's status, refreshed each second with the functions of common.js.

const COUNTERS = {
  requests: "requests", invites: "INVITEs", calls: "calls answered", registrations: "registrations", retransmissions: "retransmissions received",
  timeouts: "timeouts", overloads: "refused, overload", late: "refused while draining", denied: "refused by source", limited: "above a source's rate limit", dropped: "dropped",
};
const rates = new Rates();

const dialogs = new List("dialogs", "dialogs.json", "dialogs", (rows) => table(
  ["Kind", "State", "Age", "From", "To", "Caller transport", "Callee transport", "Call-ID"],
  rows.map((d) => [d.kind, d.state, lasting(d.age_s), d.from, d.to, d.caller, d.callees.join(", "), d.call_id]), "None."));

const contacts = new List("contacts", "contacts.json", "contacts", (rows) => table(
  ["User", "Contact", "Transport", "Source", "Expires in"],
  rows.map((c) => [c.user, c.uri, c.transport, c.source, lasting(c.expires_s)]), "None."));

const connections = new List("connections", "connections.json", "connections", (rows) => {
  const box = (c) => make("div", { class: "box" },
    make("div", {}, c.transport + " " + c.local + " ↔ " + c.peer + ", " + c.state + ", " + bytes(c.waiting_bytes) + " queued"), ...pathBoxes(c.paths));
  return rows.length ? make("div", {}, ...rows.map(box)) : none("None.");
});

function sums(status) {
  drawSums("sums", [
    [status.users, "users"], [status.contacts, "contacts"], [status.dialogs, "calls and subscriptions"],
    [status.server_transactions, "server transactions"], [status.client_transactions, "client transactions"],
    [status.connections.reduce((sum, n) => sum + n, 0), "connections"],
  ]);
}

function drawRates(status) {
  const classes = Object.fromEntries(status.responses.map((n, i) => ["responses " + (i + 1) + "xx", n]));
  const totals = Object.fromEntries(Object.entries(COUNTERS).map(([name, words]) => [words, status[name]]));
  const counters = { ...totals, ...classes }, now = rates.of(counters);
  const rows = Object.entries(counters).map(([words, n]) => [words, now ? now[words].toFixed(1) : "–", n]);
  place("rates").replaceChildren(table(["Counter", "Per second", "Total"], rows, ""));
}

live("the proxy", async () => {
  const status = await ask("status.json");
  sums(status); drawRates(status);
  place("listeners").replaceChildren(table(["Listener", "Connections"], status.listeners.map((l, i) => [l, status.connections[i]]), "None."));
  const search = sought();
  for (const list of [dialogs, contacts, connections]) await list.show(search);
  const left = status.state === "draining" ? ", draining: " + status.transactions_left + " transactions left" : "";
  return "version " + status.version + ", up " + lasting(status.uptime_s) + (status.store ? ", store " + status.store : "") + left;
});
