// Keeps the page up to date. The script follows the events of the server process that answers, and fetches the live
// part of the page again after an event about it, when a time on the page has come, and at least every 30 seconds for
// the changes of other processes. The server renders all HTML. While the page is hidden, the script has no connection.
"use strict";

const MIN_PAUSE = 1000; // ms between two fetches
const SHARE = 100; // the fetches of a page take at most a hundredth of the time, so that they do not slow the queue
const MAX_PAUSE = 30_000; // ms
const MAX_AGE = 30; // s until the live part is fetched again without an event
const MAX_LOG = 500_000; // characters

const live = document.getElementById("live");
const follows = live.dataset.follows?.split(" ") ?? [];
let pause = MIN_PAUSE; // ms
let due = null; // the timer of the next fetch
let dueAt = Infinity;
let events = null;
let shownLog = null; // the URL of the log on the page
const log = document.getElementById("log"); // only on the page of a task

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

// while the user types, selects text or has opened a question there, replacing the live part would take it away
function isInUse() {
  const focused = document.activeElement;
  const selection = getSelection();
  return (
    (live.contains(focused) && focused.matches("input, select, button, summary")) ||
    live.querySelector(".ask[open]") ||
    (!selection.isCollapsed && live.contains(selection.anchorNode))
  );
}

async function refresh() {
  dueAt = Infinity;
  if (isInUse()) return fetchIn(MIN_PAUSE);
  const begun = Date.now();
  try {
    const url = new URL(location.href);
    url.searchParams.set("part", "live");
    const answer = await fetch(url);
    if (!answer.ok) return say(`The queue refused to update the page (${answer.status}). Reload it.`);
    if (isInUse()) return fetchIn(MIN_PAUSE);
    const part = new DOMParser().parseFromString(await answer.text(), "text/html").body;
    const focused = live.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    const open = [...live.querySelectorAll("details[open][id]")].map((each) => each.id);
    live.replaceChildren(...part.childNodes);
    for (const id of open) document.getElementById(id)?.setAttribute("open", "");
    if (focused) live.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus();
  } catch {
    return say("The queue does not answer. The page tries again.");
  }
  say("Live.");
  document.getElementById("as-of").textContent = `Updated ${live.querySelector("[data-now]").dataset.now.slice(11, 19)}.`;
  pause = Math.min(MAX_PAUSE, Math.max(MIN_PAUSE, SHARE * (Date.now() - begun)));
  waitForWhatIsDue();
  showLog();
}

// no event says that a message becomes visible, that a claim expires, or that a request came
function waitForWhatIsDue() {
  const now = Date.parse(live.querySelector("[data-now]").dataset.now);
  const times = [...live.querySelectorAll("[data-in]")].map((each) => 1000 * each.dataset.in);
  times.push(...[...live.querySelectorAll("[data-until]")].map((each) => Date.parse(each.dataset.until) - now));
  const next = Math.min(...times.filter((ms) => ms > 0), 1000 * (live.dataset.every ?? MAX_AGE));
  fetchIn(Math.max(next + 50, pause));
}

// The log is fetched only once the user opens it. If that fails, the next refresh tries again.
async function showLog() {
  const link = document.getElementById("log-link");
  if (!link) return;
  log.hidden = false;
  if (!log.open || link.href === shownLog) return;
  const [note, box] = log.querySelectorAll("p, pre");
  note.textContent = link.dataset.type === "reference" ? "The log is on another server. Open its link in the list of artifacts." : "";
  if (note.textContent) return;
  shownLog = link.href;
  box.textContent = "";
  try {
    const answer = await fetch(link.href);
    if (!answer.ok) throw new Error(answer.status);
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
      const isAtEnd = box.scrollHeight - box.scrollTop - box.clientHeight < 40;
      box.textContent = (box.textContent + part.value).slice(-MAX_LOG);
      if (isAtEnd) box.scrollTop = box.scrollHeight;
    }
  } catch {
    shownLog = null;
    note.textContent = "The log is not uploaded yet, or the server that has it does not let this page read it.";
  }
}

function about(event) {
  if (!follows.length || follows.some((id) => event.data.includes(id))) fetchIn(pause);
}

function follow() {
  events = new EventSource("/inspect/v1/events");
  events.onopen = () => fetchIn(0); // for what happened before the stream began
  events.onerror = () => say(events.readyState === EventSource.CLOSED
    ? "The queue has no room for another stream of events. The page is updated every 30 seconds."
    : "The queue does not answer. The page tries again.");
  for (const name of document.querySelector("meta[name=exchanges]").content.split(" ")) {
    events.addEventListener(name, about);
  }
}

function showOrHide() {
  if (!document.hidden) return follow();
  events?.close();
  clearTimeout(due);
  dueAt = Infinity;
}

if (live.querySelector("[data-now]")) { // the page of an error has none, and does not change
  document.addEventListener("visibilitychange", showOrHide);
  log?.addEventListener("toggle", showLog);
  showOrHide();
  waitForWhatIsDue();
  showLog();
}
