"use strict";
// Flows and what keeps each from sending more, each second: drawn with the pieces of common.js.

place("what").textContent = "Flows";
place("hint").textContent = "The fastest first. What waits at a sender, and how full its buffer is, is what it says itself.";
place("search").hidden = false;

const flows = new List("rows", "flows.json", "flows", (rows) => table(
  ["Rate", "Limited by", "Full", "Waiting", "Packets", "From", "To"],
  rows.map((f) => [
    bits(f.bit_s), f.verdict, f.occupancy === null ? "–" : f.occupancy + " %", f.backlog === null ? "–" : bytes(f.backlog), f.packets,
    f.from + " port " + f.from_port, f.to + " port " + f.to_port,
  ]), "None seen lately."));

live("the router", async () => {
  const report = await ask("flows.json", { count: 1 });
  drawSums("sums", Object.entries(report.limited_by).map(([verdict, n]) => [n, "limited by: " + verdict]));
  await flows.show(sought());
  return report.known + " flows";
});
