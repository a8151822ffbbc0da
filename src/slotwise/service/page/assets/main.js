// The page: login, the stream, and what it draws once a second.

import {get, post, jobPath, whenLoggedOut} from "./api.js";
import {JobDialog, JobTable, OwnJobs} from "./jobs.js";
import {drawPool, isDark, lanesOf, leaves, poolColours, Times} from "./draw.js";
import {Model, Stream} from "./stream.js";
import {ask, listPools} from "./what_if.js";
import {$, amount, clock, counted, duration, el, keyed, number, put, safe} from "./text.js";

const RANGES = [["2 min", 120], ["10 min", 600], ["1 h", 3600], ["12 h", 43200]];
const model = new Model(), times = new Times($("times-canvas"));
const dialog = new JobDialog(model, act), table = new JobTable(model, id => dialog.open(id));
const own = new OwnJobs(model, id => dialog.open(id), act);
const stream = new Stream(model, onEvent, onState);
let isAdmin = false, roles = {"*": "submit"}, seconds = Number(localStorage.getItem("slotwise-range")) || 600, link = "";

function news(text) { put($("news"), text); }

async function act(job, verb, wrong = null) {
  try {
    await post(jobPath(job, verb));
    news(`job ${job}: ${verb} was asked for`);
    if (wrong) put(wrong, "");
    if (dialog.job === job) await dialog.refresh();
    table.load();
  } catch (error) { wrong ? put(wrong, safe(error.message)) : news(safe(error.message)); }
}

// The stream.

function onState(state) {
  if (state === link) return;
  link = state;
  $("link").className = state;
  put($("link-text"), {live: "live", lost: "reconnecting", paused: "paused", login: "logged out"}[state] ?? state);
  if (state === "lost") news("the connection is lost; the page connects again by itself");
}
function onEvent(ended, isWhole) {
  if ($("page").hidden) { $("page").hidden = false; $("login").hidden = true; }
  if (isWhole) {
    const {about} = model;
    put($("place"), [about.user, safe(about.title)].filter(Boolean).join(" at "));
    $("submit-open").hidden = !about.can.includes("submit");
    $("what-if").hidden = !(isAdmin && about.can.includes("what-if"));
    table.load();
  }
  if ((ended || isWhole) && model.about.can.includes("history")) own.drawEnded().then(jobs => ended && jobs[0] && news(`job ${jobs[0].id}: ${jobs[0].state}`)).catch(() => {});
  if (!document.hidden || isWhole) draw(); else own.draw();
}
function draw() {
  if (!model.at || $("page").hidden) return;
  drawFacts(); own.draw(); drawPools(); drawTimes(); drawWorkers(); table.draw(); dialog.draw();
}

function drawFacts() {
  const {facts} = model.sections, state = facts.state && facts.state !== "running" ? [[facts.state, "the server"]] : [];
  const shown = [...state, [`${number(facts.busy)}/${number(facts.slots)}`, "slots busy"], [number(facts.running), "running"], [number(facts.queued), "queued"],
    ...(facts.waiting ? [[number(facts.waiting), "wait for jobs"]] : []), ...(facts.held ? [[number(facts.held), "held"]] : []), [facts.scheduler, facts.objective ?? "scheduler"]];
  keyed($("facts"), shown.map(fact => [fact[1], fact]), () => el("li", {}, el("b"), el("span")), (node, [value, name]) => { put(node.firstChild, value); put(node.lastChild, ` ${name}`); });
}

function drawPools() {
  const {pools} = model.sections, colours = poolColours(pools), depth = name => pools[name]?.parent ? 1 + depth(pools[name].parent) : 0;
  const most = Math.max(1, ...Object.values(pools).map(pool => Math.max(pool.used, pool.share, pool.least)),
    ...model.samples.slice(-seconds).flatMap(one => Object.values(one.pools).map(([used]) => used)));
  put($("pool-range"), `Last ${RANGES.find(range => range[1] === seconds)?.[0] ?? ""}`);
  keyed($("pool-rows"), Object.entries(pools), name => el("tr", {}, el("th", {scope: "row"}, el("i", {className: "swatch"}), safe(name), el("ul", {className: "muted"})),
    ...["Used", "Fair", "Guaranteed", "Steady", "Running", "Queued"].map(label => el("td", {className: "number", "data-label": label})),
    el("td", {className: "over-time"}, el("canvas", {role: "img"}))), (row, pool) => {
    const name = row.dataset.key, [head, ...cells] = row.children;
    head.firstChild.style.background = colours[name]; head.style.paddingLeft = `${14 * depth(name)}px`;
    [pool.used, pool.share, pool.least || "–", pool.steady, pool.running, pool.queued].forEach((value, n) => put(cells[n], value === "–" ? value : number(value)));
    cells[0].classList.toggle("under", pool.used + 0.999 < Math.min(pool.least, pool.demand));
    keyed(head.lastChild, Object.entries(pool.limits ?? {}), () => el("li"), (item, [held, most]) => put(item, `${item.dataset.key}: ${amount(item.dataset.key, held)} of ${amount(item.dataset.key, most)}`));
    const canvas = cells[6].firstChild;
    canvas.setAttribute("aria-label", `${safe(name)} used ${pool.used} of its fair share of ${number(pool.share)} slots`);
    drawPool(canvas, model, name, seconds, colours[name], most);
  });
}

function drawTimes() {
  const {pools, facts} = model.sections, colours = poolColours(pools), isMany = !lanesOf(model).length && facts.slots > 0;
  times.draw(model, seconds);
  const first = model.bars.length ? Math.min(...model.bars.slice(0, 50).map(bar => bar[1])) : model.at;
  put($("times-note"), isMany ? `${number(facts.slots)} slots: bands for each pool, not a row for each slot`
    : model.at - first < seconds - 5 ? "tasks are recorded while a page is open" : "");
  keyed($("times-legend"), [...leaves(pools).map(name => [name, colours[name]]), ...(isMany ? [] : [["attempt failed", "var(--bad)"], ["attempt stopped", "var(--ink)"]])],
    name => el("li", {}, el("i", {className: "swatch"}), safe(name)), (node, colour) => { node.firstChild.style.background = colour; });
  $("times-canvas").setAttribute("aria-label", `${facts.busy} of ${facts.slots} slots are busy. Left and right arrows move through time.`);
}
function showAt(offset) {
  const tip = $("times-tip"), canvas = $("times-canvas");
  tip.hidden = times.cursor === null;
  if (tip.hidden) return draw();
  const {at, sample, lane, task} = times.at(times.cursor, offset), rows = [el("b", {textContent: clock(at, true)})];
  for (const name of leaves(model.sections.pools)) {
    if (!sample?.pools[name]) continue;
    const swatch = el("i", {className: "swatch"});
    swatch.style.background = times.colours[name];
    rows.push(el("div", {}, swatch, `${safe(name)}: ${counted(sample.pools[name][0], "slot")}`));
  }
  for (const [kind, [used, total]] of Object.entries(sample?.resources ?? {})) rows.push(el("div", {textContent: `${kind}: ${amount(kind, used)} of ${amount(kind, total)} requested`}));
  if (lane) rows.push(el("div", {className: "task", textContent: task ? `${lane}: job ${safe(task.job)}, task ${task.task}, attempt ${task.attempt}: ${task.how}, ${duration(task.end - task.begun)}` : `${lane}: nothing seen`}));
  tip.replaceChildren(...rows);
  const left = times.gutter + times.cursor * times.plot;
  tip.style.left = `${Math.max(0, Math.min(canvas.clientWidth - tip.offsetWidth, left + (left > canvas.clientWidth / 2 ? -tip.offsetWidth - 12 : 12)))}px`;
  times.draw(model, seconds);
  return rows.map(row => row.textContent).join(", ");
}
const canvas = $("times-canvas");
canvas.addEventListener("pointermove", event => {
  const share = (event.offsetX - times.gutter) / times.plot;
  times.cursor = share >= 0 && share <= 1 ? share : null;
  showAt(event.offsetY);
});
for (const name of ["pointerleave", "blur"]) canvas.addEventListener(name, () => { times.cursor = null; showAt(null); });
canvas.addEventListener("click", event => {
  const {task} = times.at((event.offsetX - times.gutter) / times.plot, event.offsetY);
  if (task) dialog.open(task.job);
});
canvas.addEventListener("keydown", event => {
  const move = {ArrowLeft: -0.02, ArrowRight: 0.02, Home: -1, End: 1}[event.key];
  if (move === undefined) return;
  event.preventDefault();
  times.cursor = Math.min(1, Math.max(0, (times.cursor ?? 1) + move));
  put($("times-at"), showAt(null) ?? "");
});
keyed($("ranges"), RANGES.map(([name, one]) => [name, one]), (name, one) => el("button", {type: "button", textContent: name, "aria-pressed": String(one === seconds), onclick: event => {
  seconds = one;
  localStorage.setItem("slotwise-range", one);
  for (const button of $("ranges").children) button.setAttribute("aria-pressed", String(button === event.target));
  draw();
}}), () => {});

function drawWorkers() {
  const {hosts, facts} = model.sections, listed = Object.keys(hosts).length;
  put($("workers-count"), listed < facts.hosts ? `${number(listed)} of ${number(facts.hosts)}` : counted(listed, "host"));
  keyed($("worker-rows"), Object.entries(hosts), name => el("li", {}, el("div", {className: "line"}, el("b", {textContent: safe(name)}), el("span", {className: "badge"}), el("span", {className: "muted"})),
    el("div", {className: "bar", role: "meter", "aria-valuemin": "0"}, el("i")), el("ul", {className: "muted"})), (node, host) => {
    const [line, bar, resources] = node.children, state = {present: "alive"}[host.state] ?? host.state;
    put(line.children[1], state); line.children[1].className = `badge ${host.state}`;
    put(line.children[2], `${number(host.busy)}/${counted(host.slots, "slot")} busy${host.speed !== 1 ? ` · speed ${number(host.speed)}` : ""}`);
    bar.firstChild.style.width = `${100 * host.busy / Math.max(1, host.slots)}%`;
    bar.setAttribute("aria-valuemax", host.slots); bar.setAttribute("aria-valuenow", host.busy); bar.setAttribute("aria-label", `${host.busy} of ${host.slots} slots busy`);
    keyed(resources, Object.entries(host.resources), () => el("li"), (item, [used, total]) => put(item, `${item.dataset.key}: ${amount(item.dataset.key, used)} of ${amount(item.dataset.key, total)} requested`));
  });
}

$("what-if").ontoggle = () => listPools(Object.keys(model.sections.pools));

// Submissions.

const form = $("submit-form"), field = name => form.elements[name];
const maySubmit = (name, pools) => "*" in roles || (name !== null && name !== undefined && (Object.hasOwn(roles, name) || maySubmit(pools[name]?.parent, pools)));
$("submit-open").onclick = () => {
  const {pools} = model.sections, all = leaves(pools), names = (all.length ? all : ["default"]).filter(name => maySubmit(name, pools));
  const chosen = field("pool").value;
  field("pool").replaceChildren(...names.map(name => el("option", {value: name, textContent: safe(name)})));
  if (names.includes(chosen)) field("pool").value = chosen;
  put($("submit-wrong"), names.length ? "" : "You may submit to no pool; an administrator of the server gives the role."); $("submit-answer").replaceChildren();
  $("submit").showModal();
};
function stated() {
  const job = {command: field("command").value, pool: field("pool").value}, after = field("after").value.split(/[\s,]+/).filter(Boolean);
  if (field("slots").value > 1) job.slots = Number(field("slots").value);
  if (field("tasks").value > 1) job.tasks = Number(field("tasks").value);
  if (field("memory").value.trim()) job.resources = {memory: field("memory").value.trim()};
  if (field("id").value.trim()) job.id = field("id").value.trim();
  if (after.length) job.after = after;
  return {jobs: [job], folder: field("folder").value.trim() || undefined};
}
$("submit-when").onclick = () => form.reportValidity() && ask($("submit-answer"), stated());
form.addEventListener("submit", async event => {
  event.preventDefault();
  try {
    const {jobs} = await post("v1/jobs", stated());
    $("submit").close();
    news(`job ${jobs[0].id} was submitted`);
    field("command").value = field("id").value = "";
    table.load();
  } catch (error) { put($("submit-wrong"), safe(error.message)); }
});
for (const one of document.querySelectorAll("dialog")) {
  for (const close of one.querySelectorAll(".close")) close.addEventListener("click", () => one.close());
  one.addEventListener("click", event => event.target === one && one.close());  // Beside it.
}

// Login, and the look.

function showLogin() {
  stream.close(); onState("login");
  for (const one of document.querySelectorAll("dialog[open]")) one.close();
  $("page").hidden = $("logout").hidden = $("submit-open").hidden = true; $("login").hidden = false;
  $("facts").replaceChildren(); put($("place"), ""); document.title = "slotwise: log in";
  $("token").focus();
}
// A server forgets its logins when it starts again: the token of this page is tried once more.
let token = "", isTrying = false;
whenLoggedOut(async () => {
  if (isTrying) return;
  isTrying = true;
  try {
    if (!token) throw new Error();
    await post("v1/login", {token});
    stream.open();
  } catch (error) {
    if (error.status !== 0) { token = ""; showLogin(); }  // Or it does not answer yet.
  } finally { isTrying = false; }
});
$("login-form").addEventListener("submit", async event => {
  event.preventDefault();
  put($("login-wrong"), "");
  try {
    const given = $("token").value.trim();
    await post("v1/login", {token: given});
    token = given;
    $("token").value = "";
    begin();
  } catch (error) { put($("login-wrong"), error.status === 401 ? "This token is unknown, revoked or too old." : safe(error.message)); $("token").select(); }
});
$("logout").onclick = async () => { token = ""; await post("v1/logout").catch(() => {}); showLogin(); };

async function begin() {
  try {
    const me = await get("v1/whoami");
    $("logout").hidden = !me.user; isAdmin = Boolean(me.admin); roles = me.roles;
  } catch (error) { if (error.status === 401) return; }  // Or it has no logins, or does not answer yet.
  stream.open();
}

function showTheme() { put($("theme"), isDark() ? "Light" : "Dark"); $("theme").setAttribute("aria-label", `Switch to ${isDark() ? "light" : "dark"} colours`); draw(); }
$("theme").onclick = () => {
  const theme = isDark() ? "light" : "dark";
  document.documentElement.dataset.theme = theme;
  localStorage.setItem("slotwise-theme", theme);
  showTheme();
};
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", showTheme);
addEventListener("resize", draw);
showTheme();
begin();
