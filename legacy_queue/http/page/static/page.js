// Follows the events, and fetches the live part of the page again after one that is about it, or when something
// that it shows is due. The server renders everything: this script makes no HTML, only text. A hidden page does
// nothing, and has no connection.
"use strict";

const MIN_PAUSE = 1000; // ms between two fetches
const SHARE = 100; // a fetch may take one part of so many of the time: the page must not slow the queue
const MAX_EVENTS = 100;
const MAX_LOG = 500_000; // characters
const DRAWN_WITHIN = 250; // ms; drawing each event alone would take a core from the queue

const live = document.getElementById("live");
const follows = live.dataset.follows?.split(" ") ?? [];
let pause = MIN_PAUSE; // ms
let due = null; // the timer of the next fetch
let dueAt = Infinity;
let events = null;
let shownLog = null; // the link of the log that is shown
const log = document.getElementById("log"); // of a task's page
const lines = []; // of events to be drawn, the newest first

function say(text) {
  document.getElementById("followed").textContent = text;
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
    const url = new URL(location.href);
    url.searchParams.set("part", "live");
    const answer = await fetch(url);
    if (!answer.ok) return say(`The queue refused with ${answer.status}: reload the page.`);
    const part = new DOMParser().parseFromString(await answer.text(), "text/html").body;
    const focused = live.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    live.replaceChildren(...part.childNodes);
    if (focused) live.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus();
  } catch {
    return say("The queue does not answer.");
  }
  say("Events are followed.");
  pause = Math.max(MIN_PAUSE, SHARE * (Date.now() - begun));
  waitForWhatIsDue();
  showLog();
}

// a message that becomes visible, or the end of a claim, has no event
function waitForWhatIsDue() {
  const now = Date.parse(live.querySelector("[data-now]").dataset.now);
  const times = [...live.querySelectorAll("[data-in]")].map((each) => 1000 * each.dataset.in);
  times.push(...[...live.querySelectorAll("[data-until]")].map((each) => Date.parse(each.dataset.until) - now));
  const next = Math.min(...times.filter((ms) => ms > 0));
  if (next < 2 ** 31) fetchIn(Math.max(next + 50, pause));
}

// as it comes: a worker may still be writing it. It is a request about the task: so only who opens it makes it
async function showLog() {
  const link = document.getElementById("log-link")?.href;
  if (!link) return;
  log.hidden = false;
  if (!log.open || link === shownLog) return;
  shownLog = link;
  const box = log.querySelector("pre");
  box.textContent = "";
  try {
    const answer = await fetch(link);
    if (!answer.ok) throw new Error(answer.status);
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
      const isAtEnd = box.scrollHeight - box.scrollTop - box.clientHeight < 40;
      box.textContent = (box.textContent + part.value).slice(-MAX_LOG);
      if (isAtEnd) box.scrollTop = box.scrollHeight;
    }
  } catch {
    box.textContent += "The log is not at this server, or cannot be read any more: its link among the artifacts leads to it.";
  }
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
  if (!follows.length || follows.some((id) => event.data.includes(id))) fetchIn(pause);
}

function draw() {
  const list = document.getElementById("events");
  list.prepend(...lines.splice(0));
  while (list.children.length > MAX_EVENTS) list.lastChild.remove();
}

function follow() {
  events = new EventSource("/events");
  events.onopen = () => fetchIn(0); // what happened meanwhile
  events.onerror = () => say("The queue is away, or has no room for another stream: waiting for it.");
  for (const name of document.querySelector("meta[name=exchanges]").content.split(" ")) {
    events.addEventListener(name, show);
  }
}

function showOrHide() {
  if (!document.hidden) return follow();
  events?.close();
  clearTimeout(due);
  dueAt = Infinity;
}

if (live.querySelector("[data-now]")) { // else it is the page of an error
  document.addEventListener("visibilitychange", showOrHide);
  log?.addEventListener("toggle", showLog);
  showOrHide();
  waitForWhatIsDue();
  showLog();
}
