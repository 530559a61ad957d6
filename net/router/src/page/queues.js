"use strict";
// The queues, one for each direction, refreshed each second with the functions of common.js.

place("what").textContent = "Queues";

const COUNTERS = ["offered", "sent", "sent_bytes", "dropped", "marked"];
const rates = [new Rates(), new Rates()];

function box(it, i) {
  const now = rates[i].of(Object.fromEntries(COUNTERS.map((name) => [name, it[name]])));
  const passing = now ? 8 * now.sent_bytes : 0;
  const most = it.rate_bit_s || Math.max(1, passing);
  const a_second = (name) => (now ? now[name].toFixed(1) : "–");
  const rows = [
    ["arrived", a_second("offered"), it.offered], ["sent", a_second("sent"), it.sent], ["dropped", a_second("dropped"), it.dropped],
    ["dropped without data", "", it.dropped_control], ["marked", a_second("marked"), it.marked], ["backlog", "", it.waiting],
    ["lost before the queue", "", it.missed], ["refused by the interface", "", it.refused], ["unknown segment type", "", it.unfinishable],
  ];
  return make("div", { class: "box" },
    make("div", {}, it.from + " → " + it.to + ", " + it.policy + ", " + (it.rate_bit_s ? bits(it.rate_bit_s) : "unlimited")),
    make("div", {}, bits(passing), make("meter", { min: 0, max: most, value: passing })),
    table(["Packets", "Per second", "Total"], rows, ""));
}

live("the router", async () => {
  const report = await ask("report.json");
  place("rows").replaceChildren(...report.directions.map(box));
  return "up " + lasting(Math.round(report.uptime_s));
});
