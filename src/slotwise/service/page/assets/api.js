// Requests to the server, and the frames of output that it answers with.

export class Refused extends Error {
  constructor(status, kind, message) { super(message); this.status = status; this.kind = kind; }
}

let onLogin = () => {};
export function whenLoggedOut(call) { onLogin = call; }

async function answered(path, options) {
  let response;
  try {
    response = await fetch(path, {credentials: "same-origin", ...options});
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0, "lost", "the server does not answer; try again when the page is live");
  }
  if (response.ok) return response;
  const found = await response.json().catch(() => ({}));
  const {kind = "failed", message = `the server answered ${response.status}`} = found.error ?? {};
  if (response.status === 401 && path !== "v1/login") onLogin();
  throw new Refused(response.status, kind, message);
}

export const get = async (path, query = {}) => {
  const given = Object.entries(query).filter(([, value]) => value !== "" && value !== undefined);
  return (await answered(given.length ? `${path}?${new URLSearchParams(given)}` : path)).json();
};
export const post = async (path, body) => (await answered(path, {method: "POST",
  headers: {"X-Slotwise": "1", "Content-Type": "application/json"}, body: JSON.stringify(body ?? {})})).json();
// A browser would take `..` in an id for the path of another job.
export function jobPath(job, action = "") {
  const parts = job.split("/");
  if (parts.some(part => part === "." || part === "..")) throw new Refused(0, "input", "the page cannot ask for a job with this id");
  return ["v1/jobs", ...parts.map(encodeURIComponent), ...(action ? [action] : [])].join("/");
}

// What the tasks of a job printed: calls `take(header, bytes)` for each frame.
export async function output(job, query, take, signal) {
  const path = `${jobPath(job, "logs")}?${new URLSearchParams(query)}`;
  const reader = (await answered(path, {signal})).body.getReader();
  let held = new Uint8Array();
  for (;;) {
    const {done, value} = await reader.read();
    if (done) return;
    const joined = new Uint8Array(held.length + value.length);
    joined.set(held); joined.set(value, held.length);
    held = joined;
    for (let end; (end = frameEnd(held)); held = held.slice(end.next)) take(end.header, held.slice(end.body, end.next));
  }
}
function frameEnd(bytes) {
  if (bytes.length < 4) return null;
  const length = new DataView(bytes.buffer, bytes.byteOffset).getUint32(0, true), body = 4 + length;
  if (bytes.length < body) return null;
  const header = JSON.parse(new TextDecoder().decode(bytes.slice(4, body)));
  const next = body + (header.sizes ?? []).reduce((sum, size) => sum + size, 0);
  return bytes.length < next ? null : {header, body, next};
}
