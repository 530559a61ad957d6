"use strict";
// Shared by all pages: requests, a refresh each second, sums, tables, paths of associations, paged lists.
// Data from the network is only ever set as text.

const PAUSE_MS = 1000;
// Rows per page of a list, and limit on the requests of a search that finds fewer rows.
const ROWS = 50, LOOKS = 20;

const place = (id) => document.getElementById(id);

function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children.map((child) => (child instanceof Node ? child : String(child))));
  return element;
}

function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (n >= 1024 && unit + 1 < units.length) { n /= 1024; unit += 1; }
  return (unit === 0 ? n : n.toFixed(1)) + " " + units[unit];
}

function bits(n) {
  const units = ["bit/s", "kbit/s", "Mbit/s", "Gbit/s"];
  let unit = 0;
  while (n >= 1000 && unit + 1 < units.length) { n /= 1000; unit += 1; }
  return (unit === 0 ? Math.round(n) : n.toFixed(2)) + " " + units[unit];
}

function lasting(s) {
  return s < 60 ? s + " s" : s < 3600 ? Math.floor(s / 60) + " min" : Math.floor(s / 3600) + " h";
}

function ago(ms) {
  return lasting(Math.max(0, Math.round((Date.now() - ms) / 1000))) + " ago";
}

function none(text) {
  return make("p", { class: "none" }, text);
}

function table(headings, rows, otherwise) {
  if (rows.length === 0) return none(otherwise);
  const line = (tag, cells) => make("tr", {}, ...cells.map((cell) => make(tag, {}, cell)));
  return make("div", { class: "wide" }, make("table", {}, line("th", headings), ...rows.map((row) => line("td", row))));
}

// Numbers with their names.
function drawSums(id, all) {
  place(id).replaceChildren(...all.map(([n, name]) => make("div", { class: "sum" }, make("b", {}, n), make("span", {}, name))));
}

function pathBox(path, most) {
  const rtt = path.srtt_us === null ? "–" : (path.srtt_us / 1000).toFixed(1) + " ms";
  const names = "path " + path.state + (path.in_use ? " in_use" : "");
  const words = [path.state.replace("_", " "), ...(path.primary ? ["primary"] : []), ...(path.in_use ? ["in use"] : [])];
  const lost = path.retransmissions === undefined ? [] : [make("span", {}, path.retransmissions + " retransmitted, " + path.timeouts + " timeouts")];
  return make("div", { class: names },
    make("span", {}, (path.local ?? "any") + " → " + path.remote + " (" + path.carrier + ")"),
    make("span", {}, words.join(", ")),
    make("span", {}, rtt), ...lost, make("span", {}, bytes(path.data_sent_bytes)),
    make("meter", { min: 0, max: most, value: path.data_sent_bytes }));
}

// A box for each path of an association.
function pathBoxes(paths) {
  const most = Math.max(1, ...paths.map((path) => path.data_sent_bytes));
  return paths.map((path) => pathBox(path, most));
}

// Rates of counters between two answers; null before the second answer.
class Rates {
  of(counters) {
    const now = performance.now(), last = this.last;
    this.last = { now, counters };
    if (!last || now <= last.now) return null;
    const grown = (name) => Math.max(0, counters[name] - last.counters[name]) / ((now - last.now) / 1000);
    return Object.fromEntries(Object.keys(counters).map((name) => [name, grown(name)]));
  }
}

async function ask(name, values = {}) {
  const said = Object.entries(values).filter(([, value]) => value !== null && value !== "");
  const query = said.length ? "?" + new URLSearchParams(said) : "";
  const answer = await fetch(name + query, { cache: "no-store" });
  if (!answer.ok) throw new Error(answer.status + " " + answer.statusText + ": " + (await answer.text()).trim());
  return answer.json();
}

// A paged list: `name` is the request, `rows` names the rows in the answer, and `draw` makes an element of them.
class List {
  constructor(id, name, rows, draw) {
    [this.name, this.rows, this.draw] = [name, rows, draw];
    [this.begins, this.search, this.next] = [[null], "", null];
    const button = (text, turn) => {
      const element = make("button", { type: "button" }, text);
      // A failure repeats at the next refresh, which reports it.
      element.addEventListener("click", () => { turn(); this.show(this.search).catch(() => {}); });
      return element;
    };
    this.back = button("← back", () => { if (this.begins.length > 1) this.begins.pop(); });
    this.onward = button("more →", () => { if (this.next !== null) [this.begins, this.next] = [[...this.begins, this.next], null]; });
    this.box = make("div", {});
    place(id).replaceChildren(this.box, make("p", { class: "parts" }, this.back, this.onward));
  }

  async show(search) {
    if (search !== this.search) [this.begins, this.search] = [[null], search];
    const turn = (this.turn = {});
    let rows = [], next = this.begins.at(-1);
    for (let looks = 0; looks === 0 || (next !== null && rows.length < ROWS && looks < LOOKS); looks += 1) {
      const answer = await ask(this.name, { search, after: next, count: ROWS - rows.length });
      if (turn !== this.turn) return;
      rows = rows.concat(answer[this.rows]);
      next = answer.next ?? null;
    }
    this.next = next;
    this.box.replaceChildren(this.draw(rows));
    this.back.hidden = this.begins.length === 1;
    this.onward.hidden = next === null;
  }
}

// The text of the field `search`; also kept after # in the address, for bookmarks.
function sought() {
  const field = place("search");
  if (!field.dataset.begun) {
    field.dataset.begun = "yes";
    field.value = new URLSearchParams(location.hash.slice(1)).get("search") ?? "";
  }
  const search = field.value.trim();
  history.replaceState(null, "", search ? "#" + new URLSearchParams({ search }) : location.pathname);
  return search;
}

// Reports whether the user selects text, to copy it.
function isSelecting() {
  return document.activeElement?.tagName !== "INPUT" && String(getSelection()) !== "";
}

let lastDrawn = null;

// Dims the page, and tells since when its data is old. The alert is read aloud once, because its text stays the same.
function showStale(whom, error) {
  const since = lastDrawn === null ? "" : " since " + new Date(lastDrawn).toLocaleTimeString() + "; what you see is from then";
  const text = "No answer from " + whom + since + " (" + error.message + ").";
  if (place("stale").textContent !== text || !document.body.classList.contains("stale")) place("stale").textContent = text;
  document.body.classList.add("stale");
  place("state").textContent = "no answer";
}

// Refreshes each second while the page is visible; `draw` returns the text next to the heading.
async function live(whom, draw) {
  try {
    if (!document.hidden && !isSelecting()) {
      place("state").textContent = await draw();
      document.body.dataset.drawn = "yes";
      document.body.classList.remove("stale");
      lastDrawn = Date.now();
    }
  } catch (error) {
    showStale(whom, error);
  }
  setTimeout(() => live(whom, draw), PAUSE_MS);
}
