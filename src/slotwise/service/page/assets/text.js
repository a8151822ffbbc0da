// Text for readers. Text of users becomes nodes by textContent only, so that it is never HTML.

export const $ = id => document.getElementById(id);

// An element with properties, `on...` handlers, attributes with a dash, and children.
export function el(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name.includes("-") || name === "role" || name === "for") made.setAttribute(name, value);
    else made[name] = value;
  }
  made.append(...children.filter(child => child !== null && child !== undefined));
  return made;
}

// Make the children of a node those of some items by key; nodes of known keys are kept.
export function keyed(parent, items, make, update) {
  const known = new Map([...parent.children].map(node => [node.dataset.key, node]));
  let before = null;
  for (const [key, item] of items) {
    let node = known.get(key);
    if (!node) { node = make(key, item); node.dataset.key = key; }
    known.delete(key);
    const next = before ? before.nextSibling : parent.firstChild;
    if (next !== node) parent.insertBefore(node, next);
    update(node, item);
    before = node;
  }
  for (const node of known.values()) node.remove();
}

export function put(node, text) { if (node.textContent !== text) node.textContent = text; }

const whole = new Intl.NumberFormat("en", {maximumFractionDigits: 0});
export const number = value => value === null || value === undefined ? "–"
  : Number.isInteger(value) || value >= 100 ? whole.format(value) : value.toFixed(1).replace(/\.0$/, "");
export const counted = (count, noun) => `${number(count)} ${noun}${count === 1 ? "" : "s"}`;
export function ordinal(n) {
  const last = n % 100 >= 11 && n % 100 <= 13 ? 0 : n % 10;
  return `${number(n)}${["th", "st", "nd", "rd"][last] ?? "th"}`;
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  const s = Math.max(0, seconds);
  if (s < 10) return `${s.toFixed(1)} s`;
  if (s < 120) return `${Math.round(s)} s`;
  if (s < 7200) return `${Math.round(s / 60)} min`;
  return s < 172800 ? `${(s / 3600).toFixed(1)} h` : `${Math.round(s / 86400)} days`;
}
export function clock(at, withSeconds = false) {
  const date = new Date(at * 1000), two = n => String(n).padStart(2, "0");
  return `${two(date.getHours())}:${two(date.getMinutes())}${withSeconds ? `:${two(date.getSeconds())}` : ""}`;
}
export function instant(at) {
  const date = new Date(at * 1000);
  const isToday = date.toDateString() === new Date().toDateString();
  return isToday ? clock(at, true) : `${date.toLocaleDateString("en", {day: "numeric", month: "short"})} ${clock(at)}`;
}
// Ranges of instants, `{low, high}`, in a few words as in `insight/report/ranges.py`; null is not known.
const UNITS = [["s", 1, 100], ["min", 60, 6000], ["h", 3600, 172800], ["d", 86400, Infinity]], SOON = 600;
export function range(found, now) {
  if (!found || found.low === null || (found.high === null && found.low <= now)) return "not known";
  const {low, high} = found;
  if (high === null) return `after ${near(low, now)}`;
  if (high <= now) return "now";
  if (high - now <= SOON) {
    const [symbol, size] = UNITS.find(unit => high - now < unit[2]);
    const first = Math.floor(Math.max(0, low - now) / size), last = Math.max(1, Math.ceil((high - now) / size));
    return first === last ? `in ${last} ${symbol}` : first ? `in ${first}–${last} ${symbol}` : `within ${last} ${symbol}`;
  }
  const [first, last] = [near(low, now), near(high, now)];
  if (low <= now) return `by ${last}`;
  if (first === last) return `about ${first}`;
  return `${first}–${day(low) === day(high) ? last.split(" ").at(-1) : last}`;
}
const day = at => new Date(at * 1000).toDateString();
function near(at, now) {
  const date = new Date(at * 1000), days = Math.round((new Date(day(at)) - new Date(day(now))) / 86400000);
  if (days === 0) return clock(at);
  return days > 0 && days <= 6 ? `${date.toLocaleDateString("en", {weekday: "short"})} ${clock(at)}`
    : `${date.getDate()} ${date.toLocaleDateString("en", {month: "short"})}`;
}
// When a job that is not over starts and ends: "starts 14:05–14:40, ends 15:10–16:00".
export function forecast(eta, now) {
  if (!eta) return "";
  const ends = `ends ${range(eta.end, now)}`;
  return eta.start ? `starts ${range(eta.start, now)}, ${ends}` : ends;
}

export function amount(name, value) {
  if (name !== "memory") return number(value);
  let power = 0;
  for (; value >= 1024 && power < 4; power++) value /= 1024;
  return `${number(value)} ${["bytes", "KiB", "MiB", "GiB", "TiB"][power]}`;
}

// Escape sequences of terminals are left out; other control characters, and those that change
// the direction of text, are shown instead of followed. Of a line that was written again after
// a carriage return, as by progress bars, the last state stays.
const ESCAPES = /\x1b\[[0-?]*[ -/]*[@-~]|\x9b[0-?]*[ -/]*[@-~]|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[ -/]*[0-~]/g;
const CONTROLS = /[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]/g;
export const safe = text => String(text).replace(CONTROLS, found => {
  const code = found.charCodeAt(0);
  return code < 32 ? String.fromCharCode(0x2400 + code) : `\\u${code.toString(16).padStart(4, "0")}`;
});
export const plain = text => safe(text.replace(ESCAPES, "").replace(/\r+\n/g, "\n").replace(/[^\n]*\r(?=[^\n])/g, ""));
export const oneLine = text => safe(text).replace(/\s+/g, " ");
