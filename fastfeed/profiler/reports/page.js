// draws the lanes and handles pointer, touch and keyboard; lanes.js is included before it
const devices = data.devices.map(one => ({
  ...one, lane: decoded(one.lane, one.start), waits: decoded(one.waits, one.start),
}));
const low = Math.min(...devices.map(one => one.start)), high = Math.max(low + 1, ...devices.map(one => one.end));
const judged = [
  Math.min(...devices.map(one => one.judged[0] ?? low)), Math.max(...devices.map(one => one.judged[1] ?? high)),
];
// a long start would leave no room for the steps that the verdict is about
const short = judged[1] - judged[0] < 0.5 * (high - low);
const view = short ? {a: judged[0], b: judged[1]} : {a: low, b: high};
const pictures = [];

// in a comparison, pictures begin in the same step as the first one, at the same scale
function aligned(device) {
  const from = devices[0].anchors, to = device.anchors;
  if (!data.aligned || device === devices[0] || from.length < 2 || to.length < 2) return view;
  let step = 0;
  while (step < from.length - 2 && from[step + 1] <= view.a) step++;
  const part = (view.a - from[step]) / (from[step + 1] - from[step]);
  const near = Math.min(step, to.length - 2), each = to[near + 1] - to[near];
  const a = to[near] + (step - near + part) * each;
  return {a, b: a + view.b - view.a};
}

function picture(canvas, device, own) {
  const at = () => own || aligned(device);
  const lanes = own ? {steps: 16, gpu: 44, waits: 10} : {steps: 18, gpu: 60, waits: 12};
  const rows = own ? own.lane : device.lane, waits = own ? own.waits : device.waits;
  const yGpu = lanes.steps + 4, yWaits = yGpu + lanes.gpu + 4, yAxis = yWaits + lanes.waits + 3;

  function draw() {
    const dpr = Math.min(3, window.devicePixelRatio || 1), css = canvas.clientWidth, {a, b} = at();
    if (!css) return;
    const width = canvas.width = Math.round(css * dpr);
    canvas.height = Math.round(canvas.clientHeight * dpr);
    const g = canvas.getContext("2d"), x = time => (time - a) / (b - a) * css;
    drawLane(g, rows, a, b, width, yGpu * dpr, lanes.gpu * dpr);
    drawLane(g, waits, a, b, width, yWaits * dpr, lanes.waits * dpr, true);
    g.scale(dpr, dpr);
    g.font = "11px " + getComputedStyle(document.body).fontFamily;
    g.textBaseline = "middle";
    device.steps.forEach(([start, end, label, steady], index) => {
      if (end <= a || start >= b) return;
      const left = Math.max(0, x(start)), right = Math.min(css, x(end));
      g.globalAlpha = steady ? 1 : 0.45;
      g.fillStyle = ink(index % 2 ? "--step" : "--step2");
      g.fillRect(left, 0, Math.max(0.5, right - left), lanes.steps);
      g.globalAlpha = 1;
      g.fillStyle = ink("--ink");
      const number = label.match(/\d+$/), short = number ? number[0] : label;
      const shown = [label, short].find(text => g.measureText(text).width < right - left - 8);
      if (shown) g.fillText(shown, left + 4, lanes.steps / 2);
    });
    g.fillStyle = ink("--line");
    g.fillRect(0, yWaits + lanes.waits, css, 1);
    g.fillStyle = ink("--soft");
    const size = tickSize(b - a, Math.max(2, css / 90));
    const zero = own ? own.gap[0] : 0, largest = Math.max(Math.abs(a - zero), b - zero);
    for (let tick = Math.ceil((a - zero) / size) * size; tick <= b - zero; tick += size) {
      const left = x(tick + zero), text = tickText(tick, size, largest);
      g.fillRect(left, yAxis - 2, 1, 4);
      if (left + 4 + g.measureText(text).width < css) g.fillText(text, left + 4, yAxis + 7);
    }
    if (own) {
      g.strokeStyle = ink("--ink");
      g.strokeRect(x(own.gap[0]), yGpu - 1.5, Math.max(1, x(own.gap[1]) - x(own.gap[0])), lanes.gpu + 3);
    }
    canvas.dataset.start = a;
    canvas.dataset.end = b;
  }

  const inside = where => {
    const [thread, name] = device.where[where] || ["", ""];
    return thread && name ? thread + " in " + name : thread || name;
  };

  function whole(index) {  // the idle time around a row: [start, end]
    let first = index, last = index;
    const idle = i => rows[i] && !rows[i].parts && rows[i].kind >= FIRST;
    while (idle(first - 1)) first--;
    while (idle(last + 1)) last++;
    return [rows[first].start, rows[last].end];
  }

  function stepAt(time) {
    return device.steps.find(([start, end]) => start <= time && time < end);
  }

  function describeGap(index) {
    const row = rows[index], about = classes[row.kind], [start, end] = whole(index), step = stepAt(row.start);
    const lines = [];
    if (end - start > row.end - row.start) lines.push("part of a gap of " + duration(end - start));
    if (inside(row.where)) lines.push(inside(row.where));
    if (about.means) lines.push(about.means);
    lines.push("at " + duration(row.start) + (step ? ", " + step[2] : ""));
    return {color: about.color, title: about.title + ", " + duration(row.end - row.start), lines};
  }

  function describeMix(found, span) {
    const kinds = [...found.ns.keys()].filter(kind => found.ns[kind] > 0).sort((p, q) => found.ns[q] - found.ns[p]);
    const lines = kinds.slice(0, 5).map(kind => classes[kind].title + " " + percent(found.ns[kind] / span));
    const {longest} = found;
    const title = "around " + wide.format(found.slices) + (found.slices === 1 ? " gap" : " short gaps") + " within " + duration(span);
    if (longest) {
      lines.push("longest: " + classes[longest.kind].title + ", " + duration(longest.ns)
        + (inside(longest.where) ? ", " + inside(longest.where) : ""));
    }
    return {color: longest ? classes[longest.kind].color : classes[kinds[0]].color, title, lines};
  }

  function describe(px, py) {
    const {a, b} = at(), each = (b - a) / canvas.clientWidth, time = a + px * each;
    if (py < yGpu) {
      const step = stepAt(time);
      if (!step) return null;
      const lines = ["input " + percent(step[4]) + ", idle " + percent(step[5])];
      if (!step[3]) lines.push("left out of the verdict");
      return {title: step[2] + ", " + duration(step[1] - step[0]), lines};
    }
    if (py >= yWaits) {
      const found = within(waits, time - 2 * each, time + 2 * each);
      if (!found.longest) return null;
      return {color: classes[found.longest.kind].color, title: "host waits for input, " + duration(found.longest.ns), lines: []};
    }
    const found = within(rows, time - 2 * each, time + 2 * each), {longest} = found;
    const exact = within(rows, time, time + 1);
    if (longest && longest.row !== undefined && longest.ns >= 2 * each) return describeGap(longest.row);
    if (!found.count) return null;
    const row = rows[firstAfter(rows, time)];
    if (row && !row.parts && row.start <= time && row.end - row.start >= 4 * each) {
      const about = classes[row.kind], step = stepAt(time);
      return {color: about.color, title: about.title + ", " + duration(row.end - row.start),
        lines: ["at " + duration(row.start) + (step ? ", " + step[2] : "")]};
    }
    if (row && row.parts && row.start <= time && row.end - row.start >= 4 * each) return describeMix(exact.count ? within(rows, row.start, row.end) : found, row.end - row.start);
    return describeMix(found, 4 * each);
  }

  function show(px, py) {
    const text = describe(px, py);
    if (!text) return hide();
    tip.replaceChildren();
    const title = document.createElement("b");
    if (text.color) {
      const swatch = document.createElement("i");
      swatch.className = "swatch";
      swatch.style.background = text.color;
      title.append(swatch);
    }
    title.append(text.title);
    tip.append(title);
    for (const line of text.lines) {
      const span = document.createElement("span");
      span.textContent = line;
      tip.append(span);
    }
    tip.hidden = false;
    const box = canvas.getBoundingClientRect(), room = document.documentElement.clientWidth;
    const left = Math.max(8, Math.min(box.left + px + 12, room - tip.offsetWidth - 8));
    const over = box.top + yGpu - tip.offsetHeight - 8;
    tip.style.left = left + scrollX + "px";
    tip.style.top = (over > 8 ? over : box.top + yAxis + 22) + scrollY + "px";
  }

  let drag = null, spot = null;
  canvas.addEventListener("pointermove", event => {
    if (drag && event.buttons && !own) {
      const {a, b} = drag, by = (event.clientX - drag.x) / canvas.clientWidth * (b - a);
      if (Math.abs(event.clientX - drag.x) > 4) drag.moved = true;
      if (drag.moved) return hide(), look(a - by, b - by);
    }
    if (event.pointerType === "mouse") show(event.offsetX, event.offsetY);
  });
  canvas.addEventListener("pointerdown", event => {
    drag = {x: event.clientX, a: view.a, b: view.b, moved: false};
    if (!own) canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointerup", event => {
    if (drag && !drag.moved) show(event.offsetX, event.offsetY);
    drag = null;
  });
  canvas.addEventListener("pointercancel", () => { drag = null; });
  canvas.addEventListener("pointerleave", event => event.pointerType === "mouse" && hide());
  canvas.addEventListener("blur", hide);
  if (!own) canvas.addEventListener("dblclick", event => zoom(0.25, event.offsetX / canvas.clientWidth));
  canvas.addEventListener("keydown", event => {
    const {a, b} = at(), min = (b - a) / canvas.clientWidth * 2;
    if (event.key === "Escape") hide();
    else if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
      const on = event.key === "ArrowRight", middle = row => (row.start + row.end) / 2;
      const seen = rows.filter(row => row.kind >= FIRST && row.end - row.start >= min && middle(row) > a && middle(row) < b);
      const from = spot !== null && spot > a && spot < b ? spot : on ? a : b;
      const next = on ? seen.find(row => middle(row) > from) : seen.reverse().find(row => middle(row) < from);
      if (next) {
        spot = middle(next);
        show((spot - a) / (b - a) * canvas.clientWidth, yGpu + 1);
      }
    } else if (own) return;
    else if (event.key === "+" || event.key === "=") zoom(0.5, spot === null ? 0.5 : (spot - a) / (b - a));
    else if (event.key === "-") zoom(2, 0.5);
    else if (event.key === "0" || event.key === "Home") look(low, high);
    else return;
    event.preventDefault();
  });
  new ResizeObserver(draw).observe(canvas);
  pictures.push(draw);
}

function hide() {
  tip.hidden = true;
}

function look(a, b) {
  const span = Math.min(Math.max(b - a, 1000), high - low);
  view.a = Math.max(low, Math.min(a, high - span));
  view.b = view.a + span;
  pictures.forEach(draw => draw());
}

function zoom(factor, around) {
  const span = (view.b - view.a) * factor, fixed = view.a + (view.b - view.a) * around;
  hide();
  look(fixed - span * around, fixed + span * (1 - around));
}

const actions = {
  back: () => look(view.a - (view.b - view.a) / 2, view.b - (view.b - view.a) / 2),
  on: () => look(view.a + (view.b - view.a) / 2, view.b + (view.b - view.a) / 2),
  out: () => zoom(2, 0.5),
  in: () => zoom(0.5, 0.5),
  whole: () => look(low, high),
  judged: () => look(...judged),
};

for (const canvas of document.querySelectorAll("canvas.device")) picture(canvas, devices[canvas.dataset.device]);
for (const canvas of document.querySelectorAll("canvas.gap")) {
  const gap = devices[0].worst[canvas.dataset.gap];
  picture(canvas, devices[0], {
    a: gap.view[0], b: gap.view[1], gap: gap.gap, lane: decoded(gap.lane, gap.start), waits: decoded(gap.waits, gap.start),
  });
}
for (const button of document.querySelectorAll("[data-do]")) button.addEventListener("click", actions[button.dataset.do]);
for (const button of document.querySelectorAll("[data-show]")) {
  button.addEventListener("click", () => {
    const [a, b] = devices[0].worst[button.dataset.show].view, canvas = document.querySelector("canvas.device");
    look(a - (b - a), b + (b - a));
    canvas.scrollIntoView({block: "center"});
    canvas.focus({preventScroll: true});
  });
}
const redraw = () => pictures.forEach(draw => draw());
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
addEventListener("beforeprint", () => { document.documentElement.classList.add("paper"); redraw(); });
addEventListener("afterprint", () => { document.documentElement.classList.remove("paper"); redraw(); });
