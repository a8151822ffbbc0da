// What a job or a change would do: the present course beside the changed one.

import {post} from "./api.js";
import {$, clock, duration, el, forecast, number, safe} from "./text.js";

const ROWS = 8, JOBS = "missed deadlines";
const row = (tag, values) => el("tr", {}, ...values.map(value => el(tag, {textContent: value})));
const table = (head, rows) => el("table", {}, el("thead", {}, row("th", head)), el("tbody", {}, ...rows.map(one => row("td", one))));
const end = eta => eta.end.median === null ? "not known" : clock(eta.end.median);
const late = job => job.late_before || job.late_after ? `${percent(job.late_before)}, then ${percent(job.late_after)}` : "";
const percent = part => `${Math.round(100 * part)} %`;
const change = seconds => seconds === null ? "" : `${seconds < 0 ? "−" : "+"}${duration(Math.abs(seconds))}`;

function parts({jobs, measures, deadlines, promises, now, new: made}) {
  const kept = job => deadlines.includes(job.job) ? `; keeps its deadline with a probability of ${percent(1 - job.late_after)}` : "";
  const promised = job => promises.includes(job.job) ? "; its promise could be given now" : "";
  const others = jobs.filter(job => job.before && job.after);
  return [
    ...jobs.filter(job => !job.before).map(job => el("p", {textContent: `Job ${safe(job.job)} ${forecast(job.after, now)}${kept(job)}${promised(job)}.`})),
    ...(made.length ? [] : [table(["", "now", "then"], Object.entries(measures).map(([name, both]) =>
      [name, ...both.map(value => value === null ? "not known" : name === JOBS ? number(value) : duration(value))]))]),
    others.length ? table(["Job", "User", "Ends now", "Then", "Change", "Misses its deadline"],
      others.slice(0, ROWS).map(job => [safe(job.job), safe(job.user ?? ""), end(job.before), end(job.after), change(job.delay), late(job)]))
      : el("p", {textContent: "No other job would end at another time."}),
  ];
}

// Ask, and show the answer or the error in a node.
export async function ask(node, body) {
  node.replaceChildren(el("p", {className: "muted", textContent: "simulating …"}));
  try { node.replaceChildren(...parts(await post("v1/what-if", body))); }
  catch (error) { node.replaceChildren(el("p", {className: "wrong", textContent: safe(error.message)})); }
}

// The panel of administrators.
export function listPools(pools) {
  const {pool} = $("what-if-form").elements, chosen = pool.value;
  pool.replaceChildren(...pools.map(name => el("option", {value: name, textContent: safe(name)})));
  if (pools.includes(chosen)) pool.value = chosen;
}
$("what-if-form").addEventListener("submit", event => {
  event.preventDefault();
  const {pool, weight, slots_max: most, limit, scheduler} = event.target.elements, keys = {};
  if (weight.value) keys.weight = Number(weight.value);
  if (most.value) keys.slots_max = Number(most.value);
  if (limit.value.trim()) {
    const [name, amount = ""] = limit.value.split(/=(.*)/).map(text => text.trim());
    keys.resources_max = {[name]: /^[\d.]+$/.test(amount) ? Number(amount) : amount};
  }
  ask($("what-if-answer"), {pools: Object.keys(keys).length ? {[pool.value]: keys} : {}, scheduler: scheduler.value.trim() || undefined});
});
