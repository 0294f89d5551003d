// what a lane contains, and how it is drawn; page.js continues inside the same function
const data = JSON.parse(document.getElementById("data").textContent);
const classes = data.classes, FIRST = data.busy, NOTHING = FIRST - 1, K = classes.length;
const tip = document.getElementById("tip");
const wide = new Intl.NumberFormat("en-US");

function duration(ns) {
  const sign = ns < 0 ? "-" : "", size = Math.abs(ns);
  for (const [unit, name] of [[1e9, "s"], [1e6, "ms"], [1e3, "µs"]]) {
    if (size >= 0.9995 * unit) {
      const value = size / unit;
      return sign + value.toFixed(value < 9.995 ? 2 : value < 99.95 ? 1 : 0) + " " + name;
    }
  }
  return sign + Math.round(size) + " ns";
}

const percent = share => (share > 0 && share < 0.0005 ? "< 0.1" : (100 * share).toFixed(1)) + " %";

// rows of reports/merging.py, each with its start; parts are [class, ns] of a mix
function decoded(flat, start) {
  const rows = [];
  for (let at = 0, time = start; at < flat.length;) {
    const row = {start: time, end: time + flat[at], kind: flat[at + 1], where: 0, parts: null};
    if (row.kind >= 0) {
      row.where = flat[at + 2];
      at += 3;
    } else {
      row.parts = [];
      [row.slices, row.where, row.longest, row.of] = flat.slice(at + 2, at + 6);
      const count = -row.kind;
      for (at += 6; row.parts.length < count; at += 2) row.parts.push([flat[at], flat[at + 1]]);
    }
    time = row.end;
    rows.push(row);
  }
  return rows;
}

function firstAfter(rows, time) {  // index of the first row that ends after this time
  let low = 0, high = rows.length;
  while (low < high) {
    const mid = (low + high) >> 1;
    if (rows[mid].end > time) high = mid; else low = mid + 1;
  }
  return low;
}

// nanoseconds of each class in [a, b): sum and the longest idle span, or null
function within(rows, a, b) {
  const ns = new Float64Array(K);
  let longest = null, count = 0, slices = 0;
  for (let i = firstAfter(rows, a); i < rows.length && rows[i].start < b; i++, count++) {
    const row = rows[i], held = Math.min(row.end, b) - Math.max(row.start, a);
    if (row.parts) {
      for (const [kind, part] of row.parts) ns[kind] += part * held / (row.end - row.start);
      slices += row.slices;
      if (row.slices && (!longest || row.longest > longest.ns)) longest = {ns: row.longest, kind: row.of, where: row.where};
    } else {
      ns[row.kind] += held;
      if (row.kind >= FIRST) {
        slices++;
        if (!longest || row.end - row.start > longest.ns)
          longest = {ns: row.end - row.start, kind: row.kind, where: row.where, row: i};
      }
    }
  }
  return {ns, longest, count, slices};
}

function ink(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

// columns of one pixel: each class gets its share of the height, work from below and gaps from above; a lane with only
// one class is faint instead
function drawLane(g, rows, a, b, width, top, height, faint) {
  const held = new Float32Array(width * K), scale = width / (b - a);
  for (let i = firstAfter(rows, a); i < rows.length && rows[i].start < b; i++) {
    const row = rows[i], x0 = Math.max(0, (row.start - a) * scale), x1 = Math.min(width, (row.end - a) * scale);
    const parts = row.parts || [[row.kind, row.end - row.start]], whole = row.end - row.start;
    for (let x = Math.floor(x0); x < x1; x++) {
      const cover = Math.min(x + 1, x1) - Math.max(x, x0);
      for (const [kind, ns] of parts) held[x * K + kind] += cover * ns / whole;
    }
  }
  for (let kind = 0; kind < K; kind++) {
    if (kind === NOTHING) continue;
    g.fillStyle = classes[kind].color;
    for (let x = 0; x < width; x++) {
      const share = held[x * K + kind];
      if (share < 0.002) continue;
      if (faint) {
        g.globalAlpha = Math.max(0.3, Math.min(1, share));
        g.fillRect(x, top, 1, height);
        continue;
      }
      let before = 0;
      if (kind < FIRST) for (let k = 0; k < kind; k++) before += k === NOTHING ? 0 : held[x * K + k];
      else for (let k = FIRST; k < kind; k++) before += held[x * K + k];
      const y = kind < FIRST ? top + height * (1 - before - share) : top + height * before;
      g.fillRect(x, y, 1, height * share);
    }
  }
  g.globalAlpha = 1;
}

function tickSize(span, most) {
  let size = Math.pow(10, Math.floor(Math.log10(span / most)));
  for (const factor of [1, 2, 5, 10]) if (span / (size * factor) <= most) return size * factor;
  return size * 10;
}

// as many digits as distinguish one tick from the next
function tickText(tick, size, largest) {
  const [unit, name] = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]].find(([unit]) => largest >= unit) || [1, "ns"];
  const digits = Math.max(0, Math.ceil(-Math.log10(size / unit) - 1e-9));
  return Math.abs(tick) < size / 2 ? "0" : (tick / unit).toFixed(digits) + " " + name;
}
