// Follows the events, and fetches the page again after one, or when something that it shows is due. No event, no
// request. The server renders everything: this script makes no HTML, only text.
"use strict";

const MIN_PAUSE = 1000; // ms between two fetches
const SHARE = 100; // a fetch may take one part of so many of the time: the page must not slow the queue
const MAX_EVENTS = 100;
const DRAWN_WITHIN = 250; // ms; drawing each event alone would take a core from the queue

let pause = MIN_PAUSE; // ms
let due = null; // the timer of the next fetch
let dueAt = Infinity;
const lines = []; // of events to be drawn, the newest first

function say(text) {
  document.getElementById("live").textContent = text;
}

function fetchIn(ms) {
  const at = Date.now() + Math.max(ms, 0);
  if (document.hidden || at >= dueAt) return;
  clearTimeout(due);
  dueAt = at;
  due = setTimeout(refresh, at - Date.now());
}

async function refresh() {
  dueAt = Infinity;
  const begun = Date.now();
  try {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
    const text = await answer.text();
    if (!answer.ok) return say(`The queue refused with ${answer.status}: reload the page.`);
    const main = new DOMParser().parseFromString(text, "text/html").querySelector("main");
    const focused = document.activeElement?.getAttribute("href");
    document.querySelector("main").replaceWith(main);
    if (focused) document.querySelector(`main a[href="${CSS.escape(focused)}"]`)?.focus();
  } catch {
    return say("The queue does not answer.");
  }
  say("Events are followed.");
  pause = Math.max(MIN_PAUSE, SHARE * (Date.now() - begun));
  waitForWhatIsDue();
}

// a message that becomes visible, or the end of a claim, has no event
function waitForWhatIsDue() {
  const main = document.querySelector("main");
  const now = Date.parse(main.dataset.now);
  const times = [...main.querySelectorAll("[data-in]")].map((each) => 1000 * each.dataset.in);
  times.push(...[...main.querySelectorAll("[data-until]")].map((each) => Date.parse(each.dataset.until) - now));
  const next = Math.min(...times.filter((ms) => ms > 0));
  if (next < 2 ** 31) fetchIn(Math.max(next + 50, pause));
}

function show(event) {
  const { exchange, payload } = JSON.parse(event.data);
  const line = document.createElement("li");
  const status = payload.status;
  const run = payload.runId === undefined ? "" : ` run ${payload.runId}`;
  const what = status ? `${status.taskId}${run} ${status.state}` : payload.taskGroupId;
  line.textContent = `${new Date().toISOString().slice(11, 19)} ${exchange.split("/").pop()} ${what}`;
  lines.unshift(line);
  lines.splice(MAX_EVENTS);
  if (lines.length === 1) setTimeout(draw, DRAWN_WITHIN);
  fetchIn(pause);
}

function draw() {
  const list = document.getElementById("events");
  list.prepend(...lines.splice(0));
  while (list.children.length > MAX_EVENTS) list.lastChild.remove();
}

const events = new EventSource("/events");
events.onopen = () => fetchIn(0); // what happened meanwhile
events.onerror = () => say("The queue is away, or has no room for another stream: waiting for it.");
for (const name of document.querySelector("meta[name=exchanges]").content.split(" ")) {
  events.addEventListener(name, show);
}
document.addEventListener("visibilitychange", () => fetchIn(0));
waitForWhatIsDue();
