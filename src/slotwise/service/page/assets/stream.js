// The state of the scheduler: the first event of the stream has all of it, later ones changes.

import {get, Refused} from "./api.js";

const SILENCE = 6000;  // Milliseconds without an event, of which one comes each second.
const BARS = 20000;  // The most tasks that have ended and are still drawn.
const FINE = 600, HOURS = 12;  // Seconds and hours for which samples are kept.

const SECTIONS = ["facts", "pools", "hosts", "live", "slots", "own"];

// Keys are names of users: `__proto__` must be a key like any other.
const table = () => Object.create(null);

export class Model {
  sections = {}; about = {}; bars = []; samples = []; at = 0;

  take(common, own, isWhole) {
    this.at = common.at;
    if (isWhole) {
      this.sections = Object.fromEntries(SECTIONS.map(name => [name, table()]));
      this.bars = []; this.samples = []; this.about = common.about;
    }
    const ended = Object.keys(own.removed ?? {}).length > 0;
    for (const part of [common, own]) {
      for (const [name, keys] of Object.entries(part.removed ?? {}))
        for (const key of keys) delete this.sections[name][key];
      for (const [name, values] of Object.entries(part.set))
        Object.assign(this.sections[name], values);
    }
    this.bars.push(...common.bars);
    if (this.bars.length > BARS) this.bars.splice(0, this.bars.length - BARS);
    this.samples.push(...rows(common.samples));
    this.forget();
    return ended;
  }
  // Beyond ten minutes one sample a minute is enough.
  forget() {
    const {samples, at} = this;
    let old = 0;
    while (old < samples.length && samples[old].at < at - FINE) old++;
    if (old < 90) return;
    const kept = samples.slice(0, old).filter((one, n, all) =>
      one.at > at - HOURS * 3600 && (n === 0 || Math.floor(one.at / 60) !== Math.floor(all[n - 1].at / 60)));
    if (kept.length < old) this.samples = [...kept, ...samples.slice(old)];
  }
}

function rows(columns) {
  const found = columns.at.map(at => ({at, pools: table(), resources: table()}));
  for (const section of ["pools", "resources"])
    for (const [name, [first, second]] of Object.entries(columns[section]))
      found.forEach((row, n) => { if (first[n] !== null) row[section][name] = [first[n], second[n]]; });
  return found;
}

// Calls `onEvent(ended)` after each event and `onState` with live, lost, paused or login.
export class Stream {
  constructor(model, onEvent, onState) {
    Object.assign(this, {model, onEvent, onState, tries: 0});
    document.addEventListener("visibilitychange", () => this.seen());
    addEventListener("online", () => this.source === null && this.open());
  }
  open() {
    this.close();
    const source = this.source = new EventSource("v1/stream");
    for (const name of ["state", "change"])
      source.addEventListener(name, event => {
        if (source !== this.source) return;
        const {common, own} = JSON.parse(event.data);
        const ended = this.model.take(common, own, name === "state");
        this.tries = 0;
        this.watch();
        this.onState("live");
        this.onEvent(ended, name === "state");
      });
    source.onerror = () => source === this.source && this.lost();
    this.watch();
  }
  watch() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.lost(), SILENCE);
  }
  // Try again after a time that grows to ten seconds, unless the user must log in.
  async lost() {
    this.close();
    this.onState("lost");
    const wait = Math.min(10000, 500 * 2 ** this.tries++) * (0.75 + Math.random() / 2);
    try {
      await get("v1/whoami");
    } catch (error) {
      if (error instanceof Refused && error.status === 401) return;  // The login view is shown.
    }
    if (this.source === null) this.timer = setTimeout(() => this.open(), wait);
  }
  close() {
    clearTimeout(this.timer);
    this.source?.close();
    this.source = null;
  }
  // A tab in the background gives its connection back after five minutes: a browser has six.
  seen() {
    clearTimeout(this.hiding);
    if (document.hidden) this.hiding = setTimeout(() => { this.close(); this.onState("paused"); this.isPaused = true; }, 300000);
    else if (this.isPaused) { this.isPaused = false; this.onState("lost"); this.open(); }
  }
}
