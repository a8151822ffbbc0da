// Pictures over time. All share one time scale, and draw at most one mark for each pixel.

import {amount, clock, number} from "./text.js";

const POOLS = ["#4477aa", "#ccbb44", "#aa3377", "#228833", "#66ccee", "#ee8866", "#999999"];
export const LANES_MAX = 256;
const GAP = 14, AXIS = 20, AREA = 110, LINE = 44;  // Heights in pixels.

const lit = colour => `rgb(${[1, 3, 5].map(at =>
  Math.round(0.75 * parseInt(colour.slice(at, at + 2), 16) + 64))})`;
export const isDark = () => (document.documentElement.dataset.theme ??
  (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
export function poolColours(pools) {
  const names = Object.keys(pools);
  return Object.fromEntries(names.map((name, n) => [name, isDark() ? lit(POOLS[n % 7]) : POOLS[n % 7]]));
}
// The pools that hold jobs themselves: those above them hold the same slots once more.
export function leaves(pools) {
  const inner = new Set(Object.values(pools).map(pool => pool.parent));
  return Object.keys(pools).filter(name => !inner.has(name));
}
const ink = () => {
  const style = getComputedStyle(document.documentElement);
  return name => style.getPropertyValue(`--${name}`).trim();
};

// A canvas that is as sharp as the screen; returns its context, and its size in CSS pixels.
function sized(canvas, height) {
  const scale = devicePixelRatio || 1, width = canvas.clientWidth;
  const [w, h] = [Math.round(width * scale), Math.round(height * scale)];
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w; canvas.height = h;
    canvas.style.height = `${height}px`;
  }
  const context = canvas.getContext("2d");
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, height);
  return [context, width, height];
}

// The samples from a time on, and the one before, as steps: calls `each(x, x of the next, sample)`.
function steps(model, x, from, each) {
  const {samples, at} = model;
  let n = samples.length - 1;
  while (n > 0 && samples[n].at > from) n--;
  for (; n < samples.length; n++) {
    const end = n + 1 < samples.length ? samples[n + 1].at : at;
    // On whole pixels, so that neighbours leave no seam.
    const left = Math.round(Math.max(x(from), x(samples[n].at))), right = Math.round(x(end));
    if (right > left || n + 1 === samples.length) each(left, Math.max(left + 1, right), samples[n]);
  }
}
function stepLine(context, points) {
  context.beginPath();
  points.forEach(([left, right, y], n) => { if (n === 0) context.moveTo(left, y); else context.lineTo(left, y); context.lineTo(right, y); });
  context.stroke();
}

// One pool: what it used, its fair share, and what it is guaranteed.
export function drawPool(canvas, model, name, seconds, colour, most) {
  const count = Object.keys(model.sections.pools).length;
  const [context, width, height] = sized(canvas, count > 7 ? 34 : count > 4 ? 48 : 78), colourOf = ink();
  const from = model.at - seconds, x = at => width * (at - from) / seconds, top = Math.max(1, most) * 1.08;
  const y = slots => height - 1 - (height - 2) * slots / top, fair = [];
  context.fillStyle = colour;
  context.globalAlpha = 0.75;
  steps(model, x, from, (left, right, sample) => {
    const [used, share] = sample.pools[name] ?? [0, 0];
    if (used) context.fillRect(left, y(used), right - left, height - 1 - y(used));
    fair.push([left, right, y(share)]);
  });
  context.globalAlpha = 1;
  context.strokeStyle = colourOf("ink"); context.lineWidth = 1.2;
  stepLine(context, fair);
  const least = model.sections.pools[name]?.least ?? 0;
  if (least) {
    context.setLineDash([4, 3]); context.strokeStyle = colourOf("bad");
    stepLine(context, [[0, width, y(least)]]);
    context.setLineDash([]);
  }
  context.fillStyle = colourOf("rule"); context.fillRect(0, height - 1, width, 1);
}

// The rows of the slots: the hosts, then the slots of each.
export function lanesOf(model) {
  const lanes = [];
  for (const [host, {slots}] of Object.entries(model.sections.hosts))
    for (let n = 0; n < slots; n++) lanes.push(`${host}:${n}`);
  return lanes.length > LANES_MAX ? [] : lanes;
}

// The big picture: slots by pool, the task in each slot, and other resources, one below another.
export class Times {
  constructor(canvas) { this.canvas = canvas; this.cursor = null; this.parts = []; }

  draw(model, seconds) {
    const {facts, pools} = model.sections, lanes = lanesOf(model), colours = poolColours(pools);
    const room = this.canvas.clientWidth, gutter = room < 560 ? 58 : 96;
    const row = lanes.length ? Math.max(1, Math.min(18, Math.floor(Math.max(220, 8 * lanes.length) / lanes.length), 460 / lanes.length)) : 0;
    const isUsed = kind => model.samples.some(one => one.at >= model.at - seconds && one.resources[kind]?.[0] > 0);
    const kinds = Object.keys(model.samples.at(-1)?.resources ?? {}).filter(isUsed).slice(0, 4);
    const area = lanes.length ? AREA : 220;
    const height = area + (lanes.length ? GAP + row * lanes.length : 0) + kinds.length * (GAP + LINE) + AXIS;
    const [context, width] = sized(this.canvas, height), colour = ink();
    const from = model.at - seconds, plot = width - gutter - 2, x = at => gutter + plot * (at - from) / seconds;
    Object.assign(this, {model, from, seconds, gutter, plot, row, lanes, colours, parts: []});
    context.font = `11px ${getComputedStyle(document.body).fontFamily}`;
    context.textBaseline = "middle";
    const label = (text, y, isStrong = false) => {
      context.fillStyle = colour(isStrong ? "ink" : "muted"); context.textAlign = "right";
      context.fillText(shortened(context, text, gutter - 8), gutter - 6, y);
    };
    this.axis(context, height, colour, x);
    let top = 0;
    this.area(context, top, area, Math.max(1, facts.slots), x, colour, label);
    top += area + GAP;
    if (lanes.length) {
      this.bars(context, top, x, colour, label);
      this.parts.push({top, bottom: top + row * lanes.length});
      top += row * lanes.length + GAP;
    }
    for (const kind of kinds) {
      this.resource(context, top, kind, x, colour, label);
      top += LINE + GAP;
    }
    if (this.cursor !== null) {
      context.fillStyle = colour("ink"); context.globalAlpha = 0.55;
      context.fillRect(gutter + this.cursor * plot, 0, 1, height - AXIS);
      context.globalAlpha = 1;
    }
  }
  axis(context, height, colour, x) {
    const {from, seconds, plot, gutter} = this, wanted = Math.max(2, Math.floor(plot / 110));
    const step = [5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600].find(one => seconds / one <= wanted) ?? 43200;
    const zone = new Date(from * 1000).getTimezoneOffset() * 60;
    context.textAlign = "center";
    for (let at = Math.ceil((from - zone) / step) * step + zone; at <= from + seconds; at += step) {
      context.fillStyle = colour("rule"); context.fillRect(Math.round(x(at)), 0, 1, height - AXIS);
      context.fillStyle = colour("muted");
      if (x(at) > gutter + 14 && x(at) < gutter + plot - 14) context.fillText(clock(at, step < 60), x(at), height - AXIS / 2 + 2);
    }
  }
  area(context, top, height, most, x, colour, label) {
    const y = slots => top + height - (height - 6) * slots / most, names = leaves(this.model.sections.pools);
    steps(this.model, x, this.from, (left, right, sample) => {
      let sum = 0;
      for (const name of names) {
        const used = sample.pools[name]?.[0] ?? 0;
        if (!used) continue;
        context.fillStyle = this.colours[name];
        context.fillRect(left, y(sum + used), right - left, y(sum) - y(sum + used));
        sum += used;
      }
    });
    context.strokeStyle = colour("muted"); context.setLineDash([2, 3]); context.lineWidth = 1;
    stepLine(context, [[this.gutter, this.gutter + this.plot, Math.round(y(most)) + 0.5]]);
    context.setLineDash([]);
    context.fillStyle = colour("rule"); context.fillRect(this.gutter, top + height, this.plot, 1);
    label(`${number(most)} slots`, y(most) + 4);
    label("by pool", top + height / 2, true);
    label("0", top + height - 4);
  }
  // Of the marks that fall on the same pixels of a row, the last one counts.
  bars(context, top, x, colour, label) {
    const {lanes, row, gutter, plot, model} = this, places = new Map(lanes.map((lane, n) => [lane, n]));
    const inner = row >= 5 ? row - 1.5 : Math.max(0.8, row - 0.2), bad = colour("bad"), card = colour("card");
    context.fillStyle = colour("paper");
    lanes.forEach((_, n) => context.fillRect(gutter, top + n * row, plot, inner));
    context.save();
    context.beginPath(); context.rect(gutter, top, plot, row * lanes.length); context.clip();
    const last = new Float64Array(lanes.length).fill(-1), mark = (lane, begun, end, pool, how) => {
      const place = places.get(lane);
      if (place === undefined || end < this.from) return;
      const left = Math.max(gutter, x(begun)), right = Math.max(left + 0.8, x(end)), y = top + place * row;
      if (right <= last[place] + 0.5 && how === "done") return;
      last[place] = right;
      context.fillStyle = this.colours[pool] ?? colour("muted");
      context.fillRect(left, y, right - left, inner);
      if (row >= 5 && right - left > 3) { context.fillStyle = card; context.fillRect(right - 1, y, 1, inner); }
      if (how === "failed" || how === "stopped") {
        context.fillStyle = how === "failed" ? bad : colour("ink");
        context.fillRect(right - 3, y - 0.5, 3, inner + 1);
      }
    };
    for (const [lane, begun, end, , pool, , , how] of model.bars) mark(lane, begun, end, pool, how);
    for (const [lane, [, pool, , , begun]] of Object.entries(model.sections.slots)) mark(lane, begun, model.at, pool, "running");
    context.restore();
    const each = Math.ceil(13 / row);
    lanes.forEach((lane, n) => { if (n % each === 0) label(lane.replace(/^localhost:/, "slot "), top + n * row + Math.min(row, 13) / 2); });
  }
  resource(context, top, kind, x, colour, label) {
    const total = this.model.samples.at(-1).resources[kind]?.[1] || 1, y = used => top + LINE - LINE * Math.min(1, used / total);
    context.fillStyle = colour("accent"); context.globalAlpha = 0.7;
    steps(this.model, x, this.from, (left, right, sample) => {
      const used = sample.resources[kind]?.[0] ?? 0;
      if (used) context.fillRect(left, y(used), right - left, top + LINE - y(used));
    });
    context.globalAlpha = 1;
    context.fillStyle = colour("rule"); context.fillRect(this.gutter, top + LINE, this.plot, 1);
    label(amount(kind, total), top + 6);
    label(kind, top + LINE / 2 + 4, true);
  }
  // What is at a point: the time, the slots of pools, and the task in a slot.
  at(share, offset = null) {
    const {model, from, seconds} = this, at = from + share * seconds;
    const sample = model.samples.findLast(one => one.at <= at) ?? null;
    const part = this.parts.find(one => offset !== null && offset >= one.top && offset < one.bottom);
    const lane = part ? this.lanes[Math.floor((offset - part.top) / this.row)] : null;
    let task = null;
    if (lane) {
      const now = model.sections.slots[lane];
      if (now && now[4] <= at) {
        const [job, pool, number, attempt, begun] = now;
        task = {job, pool, task: number, attempt, begun, end: model.at, how: "running"};
      }
      else for (let n = model.bars.length - 1; n >= 0 && !task; n--) {
        const [name, begun, end, job, pool, number, attempt, how] = model.bars[n];
        if (name === lane && begun <= at && at <= end) task = {job, pool, task: number, attempt, begun, end, how};
      }
    }
    return {at, sample, lane, task};
  }
}

function shortened(context, text, room) {
  if (context.measureText(text).width <= room) return text;
  let end = text.length;
  while (end > 1 && context.measureText(`${text.slice(0, end)}…`).width > room) end--;
  return `${text.slice(0, end)}…`;
}
