"""The page of `fastfeed watch --web`: one file, nothing from elsewhere, light and dark, phone and
desk.

It asks for `data.json` (see `document`) once a second. All text from feeds goes through
textContent.
"""

from __future__ import annotations

__all__ = ["PAGE"]

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>fastfeed watch</title><link rel="icon" href="data:,">
<style>
:root { color-scheme: light dark; --back: #fff; --card: #f5f6f8; --text: #1b1f24; --dim: #57606a; --line: #d5dae0;
  --good: #1a7f37; --warn: #8a6100; --bad: #c01c28; --odd: #8250df; }
@media (prefers-color-scheme: dark) { :root { --back: #0f1216; --card: #191d23; --text: #e6e9ed; --dim: #9aa4b0;
  --line: #30363d; --good: #4ac26b; --warn: #d9a520; --bad: #ff7b72; --odd: #c297ff; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 75rem; background: var(--back); color: var(--text);
  font: 16px/1.45 system-ui, sans-serif; }
h1 { font-size: 1.2rem; margin: 0 0 .8rem; } h2 { font-size: 1rem; margin: 0; overflow-wrap: anywhere; }
#feeds { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fill, minmax(min(100%, 28rem), 1fr)); }
article { background: var(--card); border: 1px solid var(--line); border-radius: .5rem; padding: .9rem; min-width: 0; }
.state { font-weight: 700; } .FED { color: var(--good); } .TIGHT { color: var(--warn); } .GPU { color: var(--odd); }
.STARVED, .SEVERE, .STALLED { color: var(--bad); } .UNKNOWN { color: var(--dim); }
p { margin: .4rem 0; overflow-wrap: anywhere; }
dl { display: grid; grid-template-columns: repeat(auto-fill, minmax(7.5rem, 1fr)); gap: .5rem; margin: .6rem 0 0; }
dt { color: var(--dim); font-size: .8rem; } dd { margin: 0; font-variant-numeric: tabular-nums; }
svg { width: 100%; height: 2.2rem; margin-top: .6rem; display: block; border-bottom: 1px solid var(--line); }
footer, .note { color: var(--dim); font-size: .85rem; margin-top: 1rem; }
.caption { margin: .2rem 0 0; } p.note:not(.caption) { margin: .2rem 0 .6rem; }
</style></head><body>
<header><h1>fastfeed watch <span id="time" class="note"></span></h1></header>
<main id="feeds" aria-label="feeds, those that lose most first"></main>
<aside id="notes" aria-label="notes"></aside>
<footer>waits, need, gets, ready, reads: exact, the feed's own counters. step: framework, timed by a callback. CPU, GPU,
could make, exposed waits (those in which the GPU idles), and what would help: estimates.</footer>
<script>
"use strict";
const percent = x => x === null ? "–" : (100 * x).toFixed(1) + " %";
const count = (x, unit = "") => x === null ? "–" :
  x.toLocaleString("en", {maximumFractionDigits: x < 10 ? 1 : 0}) + unit;
function element(tag, text, style) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (style) made.className = style;
  return made;
}
function figures(feed) {
  const exact = feed.exact, estimate = feed.estimate, gpu = estimate.gpu;
  const seconds = exact.window_seconds === null ? "" : ", " + exact.window_seconds.toFixed(0) + " s";
  const all = [["waits" + seconds, percent(exact.wait)], ["waits, 60 s", percent(exact.wait_60s)],
    ["need", count(exact.need_images_per_second, "/s")], ["gets", count(exact.delivered_images_per_second, "/s")],
    ["could make", count(estimate.capacity_images_per_second, "/s")], ["ready", count(exact.ready_batches)],
    ["step", count(feed.framework.step_ms, " ms")],
    ["reads", count(exact.read_bytes_per_second === null ? null : exact.read_bytes_per_second / 1e6, " MB/s")],
    ["repeated reads", count(exact.retries)],
    ["CPU cores", count(estimate.cpu_cores) + " of " + count(estimate.cpu_cores_usable)]];
  if (gpu) all.push(["GPU " + gpu.index + ", SM", percent(gpu.sm)],
    ["exposed waits", percent(estimate.exposed_wait_10s)], ["JPEG engines", percent(gpu.nvjpg)],
    ["PCIe to GPU", count(gpu.pcie_rx_bytes_per_second && gpu.pcie_rx_bytes_per_second / 1e9, " GB/s")]);
  const list = element("dl");
  for (const [name, value] of all) {
    const pair = element("div");
    pair.append(element("dt", name), element("dd", value));
    list.append(pair);
  }
  return list;
}
function spark(waits, seconds) {
  const space = "http://www.w3.org/2000/svg", svg = document.createElementNS(space, "svg");
  svg.setAttribute("viewBox", "0 0 120 20");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("role", "img");
  const known = waits.filter(w => w !== null), minutes = (waits.length * seconds / 60).toFixed(1);
  const mean = known.length ? percent(known.reduce((a, b) => a + b, 0) / known.length) : "not known";
  svg.setAttribute("aria-label", "share of time waiting over the last " + minutes + " minutes, mean " + mean);
  const line = document.createElementNS(space, "polyline");
  line.setAttribute("points", waits.map((w, i) => (120 - waits.length + i) + "," + (19 - 18 * (w || 0))).join(" "));
  line.setAttribute("fill", "none");
  line.setAttribute("stroke", "currentColor");
  line.setAttribute("vector-effect", "non-scaling-stroke");
  svg.append(line);
  return svg;
}
function card(feed) {
  const made = element("article");
  const rank = feed.world > 1 ? ", rank " + feed.rank + " of " + feed.world : "";
  const steps = feed.steps ? ", epoch " + feed.exact.epoch + ", step " + feed.exact.step + " of " + feed.steps : "";
  made.append(element("h2", (feed.name || feed.source) + rank));
  made.append(element("p", "pid " + feed.pid + " on " + feed.host + steps, "note"));
  const state = element("p");
  state.append(element("span", feed.state, "state " + feed.state.split(" ")[0]), ": " + feed.reason);
  made.append(state);
  if (feed.remedy) made.append(element("p", feed.remedy));
  const history = feed.history, minutes = (history.wait.length * history.seconds / 60).toFixed(1);
  made.append(figures(feed), spark(history.wait, history.seconds),
    element("p", "waits, 0 to 100 %, the last " + minutes + " minutes", "note caption"));
  return made;
}
async function refresh() {
  try {
    const data = await (await fetch("data.json", {cache: "no-store"})).json();
    const cards = data.feeds.map(card);
    document.getElementById("feeds").replaceChildren(...(cards.length ? cards :
      [element("p", "No feed is running. A feed appears here with its first batch.")]));
    document.getElementById("notes").replaceChildren(...data.notes.map(note => element("p", note, "note")));
    document.getElementById("time").textContent = new Date(1000 * data.time).toLocaleTimeString();
  } catch (error) {
    document.getElementById("time").textContent = "fastfeed watch has exited: these values are stale";
  }
}
refresh();
setInterval(refresh, 1000);
</script></body></html>
"""
