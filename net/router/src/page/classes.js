"use strict";
// The kernel's classes by occupancy, each second: drawn with the pieces of common.js.

place("what").textContent = "Classes by occupancy";
place("hint").textContent = "How full senders' buffers are, as they say. A bar shows what passes of what the class may have at most.";

function row(c) {
  const passing = c.passing_bit_s ?? 0;
  const bar = make("meter", { min: 0, max: Math.max(1, c.ceil_bit_s), value: passing });
  return [c.occupancy, make("div", {}, bits(passing), bar), bits(c.rate_bit_s), c.packets, bytes(c.bytes), c.dropped, c.waiting, c.class];
}

live("the router", async () => {
  const report = await ask("classes.json");
  const sum = (name) => report.classes.reduce((sum, c) => sum + (c[name] ?? 0), 0);
  drawSums("sums", [[bits(sum("passing_bit_s")), "pass"], [sum("packets"), "packets"], [sum("dropped"), "dropped"], [sum("waiting"), "wait"]]);
  const headings = ["Full", "Passing", "Guaranteed", "Packets", "Bytes", "Dropped", "Waiting", "Class"];
  place("rows").replaceChildren(table(headings, report.classes.map(row), "None."));
  return report.interface + ", counted each " + lasting(report.every_s);
});
