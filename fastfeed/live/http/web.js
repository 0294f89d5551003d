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
