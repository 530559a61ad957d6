"use strict";
// Flows and the limit on their rate, refreshed each second with the functions of common.js.

place("what").textContent = "Flows";
place("hint").textContent = "Fastest first. Backlog and occupancy of the send buffer are the sender's own advertisement.";
place("search").hidden = false;

const flows = new List("rows", "flows.json", "flows", (rows) => table(
  ["Rate", "Limited by", "Occupancy", "Backlog", "Packets", "From", "To"],
  rows.map((f) => [
    bits(f.bit_s), f.verdict, f.occupancy === null ? "–" : f.occupancy + " %", f.backlog === null ? "–" : bytes(f.backlog), f.packets,
    f.from + " port " + f.from_port, f.to + " port " + f.to_port,
  ]), "None seen recently."));

live("the router", async () => {
  const report = await ask("flows.json", { count: 1 });
  drawSums("sums", Object.entries(report.limited_by).map(([verdict, n]) => [n, "limited by: " + verdict]));
  await flows.show(sought());
  return report.known + " flows";
});
