// The user's own jobs, the dialog of a job, and the table of all jobs.

import {get, jobPath, output, post} from "./api.js";
import {$, clock, counted, duration, el, forecast, instant, keyed, number, oneLine, ordinal, plain, put, range, safe} from "./text.js";

const LIVE = new Set(["queued", "waiting", "held", "running"]), OVER = "done,failed,cancelled,lost";
const LOG_CHARS = 200000, PAGE = 25, TAILS = 3, REFRESH = 4000, STALE = 15000;
const FORECAST = "A forecast: a range that is to hold what happens in 80 of 100 cases";

export const badge = state => el("span", {className: `badge ${state}`, textContent: state});
const button = (text, onclick, more = {}) => el("button", {type: "button", textContent: text, onclick, ...more});

export function progress(done, tasks, running = 0) {
  const bar = el("div", {className: "bar", role: "progressbar", "aria-valuemin": "0"}, el("i"), el("i"));
  return fill(bar, done, tasks, running);
}
export function fill(bar, done, tasks, running = 0) {
  const share = n => `${Math.min(100, 100 * n / Math.max(1, tasks))}%`;
  bar.children[0].style.width = share(done);
  bar.children[1].style.width = share(Math.min(running, tasks - done));
  bar.setAttribute("aria-valuemax", tasks); bar.setAttribute("aria-valuenow", done);
  bar.setAttribute("aria-label", `${number(done)} of ${counted(tasks, "task")} done`);
  return bar;
}

// The jobs of the user: those not over from the stream, and those that ended last.
export class OwnJobs {
  constructor(model, open, act) { Object.assign(this, {model, open, act, tails: new Map()}); }

  draw() {
    const {own, facts} = this.model.sections, can = this.model.about.can;
    const order = {running: 0, queued: 1, held: 2, waiting: 3};
    const jobs = Object.values(own).sort((a, b) => order[a.state] - order[b.state] || (a.position ?? 1e9) - (b.position ?? 1e9)
      || (a.submitted ?? 0) - (b.submitted ?? 0) || (a.id < b.id ? -1 : 1));
    const count = state => jobs.filter(job => job.state === state).length;
    put($("own-count"), ["running", "queued", "held", "waiting"].filter(count).map(state => `${count(state)} ${state}`).join(" · "));
    $("own-none").hidden = jobs.length > 0;
    put($("own-none"), can?.includes("submit") ? "None of your jobs is queued or runs. Submit one here, or with slotwise submit." : "No job is queued or runs.");
    keyed($("own-jobs"), jobs.map(job => [job.id, job]), id => this.make(id), (node, job) => this.update(node, job, can));
    const running = jobs.filter(job => job.state === "running").slice(0, TAILS).map(job => job.id);
    if (can?.includes("logs")) this.follow(running);
    document.title = count("running") ? `${count("running")} running · slotwise` : facts.busy ? `slotwise · ${facts.busy} of ${facts.slots} busy` : "slotwise";
  }
  make(id) {
    return el("li", {},
      el("div", {className: "line"}, badge("queued"), el("button", {type: "button", className: "name", onclick: () => this.open(id)}),
        el("span", {className: "muted where"}), el("span", {className: "actions"})),
      progress(0, 1), el("p", {className: "eta"}), el("p", {className: "why"}), el("pre", {className: "tail", hidden: true, "aria-label": `Last output of job ${safe(id)}`}));
  }
  update(node, job, can) {
    const [line, bar, eta, why, tail] = node.children, [state, name, where, actions] = line.children;
    const [tasks, done, running, slots] = job.numbers;
    if (state.textContent !== job.state) { state.textContent = job.state; state.className = `badge ${job.state}`; }
    if (!name.firstChild || name.dataset.name !== job.name) {
      name.dataset.name = job.name;
      name.replaceChildren(el("b", {textContent: safe(job.id)}), job.name && job.name !== job.id ? ` ${oneLine(job.name)}` : "");
    }
    const age = job.submitted ? ` · ${duration(this.model.at - job.submitted)}` : "";
    put(where, `${safe(job.pool)} · ${number(done)}/${counted(tasks, "task")}${slots ? ` · ${counted(slots, "slot")}` : ""}${age}`);
    fill(bar, done, tasks, running);
    const when = forecast(job.eta, this.model.at);
    put(eta, when && `${when[0].toUpperCase()}${when.slice(1)}`); eta.hidden = !when;
    eta.title = FORECAST;
    const place = job.position ? `${ordinal(job.position)} in ${safe(job.pool)}${job.ahead.length ? `, after ${job.ahead.map(safe).join(", ")}` : ""}. ` : "";
    const reason = job.state === "running" && job.reason.startsWith("all its tasks run") ? "" : safe(job.reason);
    put(why, place + (reason ? reason[0].toUpperCase() + reason.slice(1) + (reason.endsWith(".") ? "" : ".") : ""));
    why.hidden = !why.textContent;
    if (actions.dataset.key !== job.state) {
      actions.dataset.key = job.state;
      const made = [];
      if (can.includes("hold") && job.state !== "running") made.push(job.state === "held" ? ["Release", "release"] : ["Hold", "hold"]);
      if (can.includes("cancel")) made.push(["Cancel", "cancel"]);
      actions.replaceChildren(...made.map(([text, verb]) => button(text, () => this.act(job.id, verb), {"aria-label": `${text} job ${safe(job.id)}`})));
    }
    const printed = job.state === "running" ? this.tails.get(job.id) ?? "" : "";
    put(tail, printed); tail.hidden = !printed;
  }
  // The ends of the output of some running jobs; files are read for it, the scheduler is not asked.
  async follow(jobs) {
    const now = Date.now();
    const isNew = jobs.some(job => !this.tails.has(job));
    if (document.hidden || now - (this.asked ?? 0) < (isNew ? 900 : REFRESH)) return;
    this.asked = now;
    for (const job of [...this.tails.keys()]) if (!jobs.includes(job)) this.tails.delete(job);
    for (const job of jobs) {
      const pieces = [], decoder = new TextDecoder();
      try {
        await output(job, {tail: 2000}, (_, bytes) => pieces.push(decoder.decode(bytes)));
        this.tails.set(job, plain(pieces.at(-1) ?? "").split("\n").filter(line => line.trim()).slice(-3).join("\n"));
      } catch { this.tails.set(job, ""); }
    }
  }
  async drawEnded() {
    const user = this.model.about.user;
    const {jobs} = await get("v1/jobs", {state: OVER, user, limit: 3, sort: "ended"});
    $("own-ended-part").hidden = !jobs.length;
    keyed($("own-ended"), jobs.reverse().map(job => [job.id, job]), id => el("li", {className: "line"}, badge("done"),
      el("button", {type: "button", className: "name", onclick: () => this.open(id)}), el("span", {className: "muted where"})), (node, job) => {
      const [state, name, where] = node.children;
      state.textContent = job.state; state.className = `badge ${job.state}`;
      name.replaceChildren(el("b", {textContent: safe(job.id)}), job.name ? ` ${oneLine(job.name)}` : "");
      const code = job.code ? ` · exit code ${job.code}` : "";
      put(where, `${safe(job.pool)} · ${clock(job.ended)}${job.begun ? ` after ${duration(job.ended - job.begun)}` : ""}${code}`);
      where.title = job.reason ? plain(job.reason) : "";
    });
    return jobs;
  }
}

// All about one job.
export class JobDialog {
  constructor(model, act) {
    Object.assign(this, {model, act, node: $("job"), job: null});
    this.node.addEventListener("close", () => { this.job = null; this.reading?.abort(); this.reading = null; });
    $("job-follow").addEventListener("change", () => this.read());
  }
  async open(id) {
    this.job = id;
    put($("job-title"), `Job ${safe(id)}`);
    for (const part of ["job-log", "job-why", "job-wrong", "job-state"]) put($(part), "");
    $("job-facts").replaceChildren(); $("job-tasks").replaceChildren(); $("job-actions").replaceChildren();
    if (!this.node.open) this.node.showModal();
    this.last = "";
    await this.refresh();
    this.read();
  }
  // Once it is open, it is asked for again when the stream shows a change of it.
  async draw() {
    const {own, live} = this.model.sections;
    const key = JSON.stringify([own[this.job]?.state, own[this.job]?.numbers, live[this.job], this.job]);
    if (this.job === null || key === this.last || Date.now() - (this.asked ?? 0) < 1000) return;
    this.last = key;
    await this.refresh();
  }
  async refresh() {
    const id = this.job, can = this.model.about.can;
    this.asked = Date.now();
    try {
      const job = await get(jobPath(id));
      if (id !== this.job) return;
      this.show(job, can);
      const isLive = LIVE.has(job.state);
      $("job-why-part").hidden = !isLive && !job.reason;
      if (isLive && can.includes("explain")) put($("job-why"), plain((await get(jobPath(id, "explain"))).text));
      else put($("job-why"), plain(job.reason ?? ""));
    } catch (error) { put($("job-wrong"), safe(error.message)); }
  }
  show(job, can) {
    const isLive = LIVE.has(job.state), now = this.model.at;
    $("job-state").replaceChildren(badge(job.state), ` ${oneLine(job.name ?? "")}`);
    const facts = [["Pool", safe(job.pool)], ["User", safe(job.user ?? "")], ["Submitted", job.submitted && instant(job.submitted)],
      ["Waited", job.submitted && duration((job.begun ?? job.ended ?? now) - job.submitted)],
      [job.ended ? "Ran" : "Runs since", job.begun && (job.ended ? duration(job.ended - job.begun) : instant(job.begun))],
      ["Starts", job.eta?.start && range(job.eta.start, now)], ["Ends", job.eta && range(job.eta.end, now)],
      ["Forecast", job.eta && `${Math.round(100 * job.eta.confidence)} % sure, ${duration(now - job.eta.at)} old`],
      ["Tasks", `${number(job.tasks_done)} of ${number(job.tasks)} done${job.tasks_failed ? `, ${number(job.tasks_failed)} failed` : ""}`],
      ["Slots", isLive && number(job.slots)], ["Priority", job.priority], ["Weight", job.weight !== 1 && number(job.weight)],
      ["Deadline", job.deadline && instant(job.deadline)], ["After", job.after?.length && job.after.map(safe).join(", ")],
      ["Exit code", job.code !== null && String(job.code)], ["Output", job.output && String(job.output)]];
    $("job-facts").replaceChildren(...facts.filter(([, value]) => value).map(([name, value]) =>
      el("div", {}, el("dt", {textContent: name}), el("dd", {textContent: safe(value)}))));
    const verbs = isLive ? [can.includes("hold") && (job.held ? ["Release", "release"] : ["Hold", "hold"]), can.includes("cancel") && ["Cancel", "cancel"]] : [];
    $("job-actions").replaceChildren(...verbs.filter(Boolean).map(([text, verb]) => button(text, () => this.act(job.id, verb, $("job-wrong")))));
    const tasks = (job.tasks_listed ?? []).slice(0, 100);
    $("job-tasks-part").hidden = tasks.length === 0;
    $("job-tasks").replaceChildren(...tasks.map(task => el("tr", {}, cell(number(task.task), "number"), el("td", {}, badge(task.state)),
      cell(number(task.attempt), "number"), cell(task.code ?? "", "number"), cell(safe(task.host ?? "")), cell(plain(task.reason ?? ""), "reason"))));
    $("job-log-part").hidden = !can.includes("logs");
  }
  // Show the output; of more than some screens, the end.
  async read() {
    this.reading?.abort();
    if (this.job === null || !this.model.about.can.includes("logs")) return;
    const reading = this.reading = new AbortController(), log = $("job-log"), decoders = new Map();
    let last = "";
    log.replaceChildren();
    const take = (header, bytes) => {
      const source = `${header.phase ?? ""}${header.task}.${header.attempt}.${header.stream}`;
      if (!decoders.has(source)) decoders.set(source, new TextDecoder());
      const text = decoders.get(source).decode(bytes, {stream: true});
      const isAtEnd = log.scrollTop + log.clientHeight >= log.scrollHeight - 20;
      if (source !== last) log.append(el("span", {className: "muted", textContent:
        `${log.childNodes.length ? "\n" : ""}── ${header.phase ? `${safe(header.phase)} ` : ""}task ${header.task}, attempt ${header.attempt}, std${header.stream}\n`}));
      last = source;
      log.append(plain(text));
      let size = log.textContent.length;
      while (size > LOG_CHARS && log.childNodes.length > 1) { size -= log.firstChild.textContent.length; log.firstChild.remove(); }
      if (isAtEnd) log.scrollTop = log.scrollHeight;
    };
    try {
      await output(this.job, {tail: LOG_CHARS, follow: $("job-follow").checked ? "1" : "0"}, take, reading.signal);
      if (!log.childNodes.length) log.append(el("span", {className: "muted", textContent: "nothing was printed"}));
    } catch (error) { if (error.name !== "AbortError") put($("job-wrong"), safe(error.message)); }
  }
}
const cell = (text, className = "") => el("td", {textContent: text, className});

// When it was, or the range of a forecast.
function when(node, at, eta, now) {
  const isForecast = !at && Boolean(eta);
  put(node, at ? instant(at) : isForecast ? range(eta, now) : "");
  node.classList.toggle("forecast", isForecast); node.title = isForecast ? FORECAST : "";
}

// The table of all jobs, of which the server sends one page at a time.
const COLUMNS = [["Job", "number"], ["User", "user"], ["Pool", "pool"], ["State", ""], ["Tasks done", ""], ["Slots", ""],
  ["Submitted", ""], ["Waited", ""], ["Start", "begun"], ["Ran", ""], ["End", "ended"]];
const RIGHT = new Set(["Slots", "Waited", "Ran"]);

export class JobTable {
  constructor(model, open) {
    Object.assign(this, {model, open, page: 0, sort: "number", isOldest: false, jobs: []});
    $("queue-head").append(...COLUMNS.map(([title, sort]) => {
      const head = el("th", {className: RIGHT.has(title) ? "number" : "", scope: "col"});
      head.append(sort ? button(title, () => this.order(sort), {className: "sort"}) : title);
      if (sort) head.dataset.sort = sort;
      return head;
    }));
    this.filters = $("filters");
    this.filters.addEventListener("submit", event => event.preventDefault());
    this.filters.addEventListener("input", () => {
      clearTimeout(this.typing);
      this.typing = setTimeout(() => { this.page = 0; this.load(); }, 250);
    });
    $("queue-prev").onclick = () => { this.page = Math.max(0, this.page - 1); this.load(); };
    $("queue-next").onclick = () => { this.page++; this.load(); };
  }
  order(sort) {
    this.isOldest = this.sort === sort && !this.isOldest;
    Object.assign(this, {sort, page: 0});
    this.load();
  }
  async load() {
    const number = this.asking = (this.asking ?? 0) + 1;
    this.asked = Date.now();
    const query = {...Object.fromEntries(new FormData(this.filters)), limit: PAGE, offset: this.page * PAGE, sort: this.sort};
    if (this.isOldest) query.order = "oldest";
    try {
      const found = await get("v1/jobs", query);
      if (number !== this.asking) return;
      this.jobs = this.isOldest ? found.jobs : found.jobs.reverse();
      this.more = found.more;
      this.problem = "";
    } catch (error) { this.problem = error.message; }
    this.seen = this.counts();
    this.show();
  }
  counts() { const {running, queued, waiting, held} = this.model.sections.facts ?? {}; return `${running} ${queued} ${waiting} ${held}`; }
  // Numbers of running jobs come with the stream; the page of the table is asked for again when jobs came or ended,
  // and for forecasts.
  draw() {
    const {live, pools} = this.model.sections, select = this.filters.elements.pool;
    keyed(select, [["", "all"], ...Object.keys(pools).map(name => [name, safe(name)])], key => el("option", {value: key}), (node, text) => put(node, text));
    const age = Date.now() - (this.asked ?? 0), isStale = age > STALE && this.jobs.some(job => job.eta);
    if (!document.hidden && (isStale || (this.seen !== this.counts() && age > REFRESH))) this.load();
    for (const job of this.jobs) {
      const now = live[job.id];
      if (now && LIVE.has(job.state)) [job.tasks, job.tasks_done, job.tasks_running, job.slots] = now, job.state = now[2] ? "running" : job.state;
    }
    this.show();
  }
  show() {
    const at = this.model.at || Date.now() / 1000;
    for (const head of $("queue-head").children) {
      const is = head.dataset.sort === this.sort;
      if (head.dataset.sort) head.setAttribute("aria-sort", is ? this.isOldest ? "ascending" : "descending" : "none");
    }
    keyed($("queue-rows"), this.jobs.map(job => [job.id, job]), id => el("tr", {}, el("th", {scope: "row"}, el("button", {type: "button", className: "name", onclick: () => this.open(id)})),
      cell(""), cell(""), el("td", {}, badge("queued")), el("td", {className: "tasks"}, progress(0, 1), el("span")), ...COLUMNS.slice(5).map(([title]) => cell("", RIGHT.has(title) ? "number" : ""))),
    (row, job) => {
      const [name, user, pool, state, tasks, slots, submitted, waited, began, ran, ended] = row.children;
      if (!name.firstChild.firstChild) name.firstChild.append(el("b", {textContent: safe(job.id)}), job.name ? ` ${oneLine(job.name)}` : "");
      put(user, safe(job.user ?? "")); put(pool, safe(job.pool));
      put(state.firstChild, job.state); state.firstChild.className = `badge ${job.state}`; state.title = job.reason ? plain(job.reason) : "";
      fill(tasks.firstChild, job.tasks_done, job.tasks, job.tasks_running);
      put(tasks.lastChild, `${number(job.tasks_done)}/${number(job.tasks)}`);
      put(slots, job.slots ? number(job.slots) : "");
      put(submitted, job.submitted ? instant(job.submitted) : "");
      put(waited, job.submitted ? duration((job.begun ?? job.ended ?? at) - job.submitted) : "");
      when(began, job.begun, job.eta?.start, at);
      put(ran, job.begun ? duration((job.ended ?? at) - job.begun) : "");
      when(ended, job.ended, job.eta?.end, at);
    });
    $("queue-prev").disabled = this.page === 0;
    $("queue-next").disabled = !this.more;
    const first = this.page * PAGE;
    put($("queue-place"), this.problem ? safe(this.problem) : this.jobs.length ? `${number(first + 1)} to ${number(first + this.jobs.length)}${this.more ? " of more" : ""}` : "no such jobs");
  }
}
