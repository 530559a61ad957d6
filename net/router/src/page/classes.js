"use strict";
// The kernel's classes by occupancy, refreshed each second with the functions of common.js.

place("what").textContent = "Classes by occupancy";
place("hint").textContent = "Occupancy of send buffers, as advertised. A bar shows the rate of the class, relative to its ceiling.";

function row(c) {
  const passing = c.passing_bit_s ?? 0;
  const bar = make("meter", { min: 0, max: Math.max(1, c.ceil_bit_s), value: passing });
  return [c.occupancy, make("div", {}, bits(passing), bar), bits(c.rate_bit_s), c.packets, bytes(c.bytes), c.dropped, c.waiting, c.class];
}

live("the router", async () => {
  const report = await ask("classes.json");
  const sum = (name) => report.classes.reduce((sum, c) => sum + (c[name] ?? 0), 0);
  drawSums("sums", [[bits(sum("passing_bit_s")), "rate"], [sum("packets"), "packets"], [sum("dropped"), "dropped"], [sum("waiting"), "backlog"]]);
  const headings = ["Occupancy", "Rate", "Guaranteed", "Packets", "Bytes", "Dropped", "Backlog", "Class"];
  place("rows").replaceChildren(table(headings, report.classes.map(row), "None."));
  return report.interface + ", interval " + lasting(report.every_s);
});
