// Follows the events of the server process that answers. It fetches the live part of the page again after an event
// that is about it, when something that it shows is due, and now and then for what other processes have done. The
// server renders everything: this script makes no HTML, only text. A hidden page does nothing, and has no connection.
"use strict";

const MIN_PAUSE = 1000; // ms between two fetches
const SHARE = 100; // a fetch may take one part of so many of the time: the page must not slow the queue
const MAX_PAUSE = 30_000; // ms
const MAX_AGE = 30; // s of the live part
const MAX_LOG = 500_000; // characters

const live = document.getElementById("live");
const follows = live.dataset.follows?.split(" ") ?? [];
let pause = MIN_PAUSE; // ms
let due = null; // the timer of the next fetch
let dueAt = Infinity;
let events = null;
let shownLog = null; // the link of the log that is shown
const log = document.getElementById("log"); // of a task's page

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

// what somebody types, chooses or selects there must stay
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
    if (!answer.ok) return say(`The queue refused with ${answer.status}: reload the page.`);
    if (isInUse()) return fetchIn(MIN_PAUSE);
    const part = new DOMParser().parseFromString(await answer.text(), "text/html").body;
    const focused = live.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    const open = [...live.querySelectorAll("details[open][id]")].map((each) => each.id);
    live.replaceChildren(...part.childNodes);
    for (const id of open) document.getElementById(id)?.setAttribute("open", "");
    if (focused) live.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus();
  } catch {
    return say("The queue does not answer.");
  }
  say("Live.");
  document.getElementById("as-of").textContent = `Updated ${live.querySelector("[data-now]").dataset.now.slice(11, 19)}.`;
  pause = Math.min(MAX_PAUSE, Math.max(MIN_PAUSE, SHARE * (Date.now() - begun)));
  waitForWhatIsDue();
  showLog();
}

// a message that becomes visible, the end of a claim, and a request have no event
function waitForWhatIsDue() {
  const now = Date.parse(live.querySelector("[data-now]").dataset.now);
  const times = [...live.querySelectorAll("[data-in]")].map((each) => 1000 * each.dataset.in);
  times.push(...[...live.querySelectorAll("[data-until]")].map((each) => Date.parse(each.dataset.until) - now));
  const next = Math.min(...times.filter((ms) => ms > 0), 1000 * (live.dataset.every ?? MAX_AGE));
  fetchIn(Math.max(next + 50, pause));
}

// It is a request about the task: so only who opens it makes it. What failed is tried again with the next refresh.
async function showLog() {
  const link = document.getElementById("log-link");
  if (!link) return;
  log.hidden = false;
  if (!log.open || link.href === shownLog) return;
  const [note, box] = log.querySelectorAll("p, pre");
  note.textContent = link.dataset.type === "reference" ? "It is at another server: its link among the artifacts leads there." : "";
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
    note.textContent = "It is not uploaded yet, or this page may not read it where it is.";
  }
}

function about(event) {
  if (!follows.length || follows.some((id) => event.data.includes(id))) fetchIn(pause);
}

function follow() {
  events = new EventSource("/inspect/v1/events");
  events.onopen = () => fetchIn(0); // what happened meanwhile
  events.onerror = () => say("The queue is away, or has no room for another stream: waiting for it.");
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

if (live.querySelector("[data-now]")) { // else it is the page of an error
  document.addEventListener("visibilitychange", showOrHide);
  log?.addEventListener("toggle", showLog);
  showOrHide();
  waitForWhatIsDue();
  showLog();
}
