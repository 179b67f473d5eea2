"""The web pages: each function below collects the values that the template of its name shows.

The server renders every page. The script in the browser only fetches the live part again when it changes.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial, wraps
from typing import Any
from urllib.parse import quote

from flask import Response, render_template, request
from markupsafe import Markup

from legacy_queue.domain.artifact import Artifact
from legacy_queue.domain.errors import ResourceNotFound
from legacy_queue.domain.events import EXCHANGES
from legacy_queue.domain.ids import TASK_ID
from legacy_queue.domain.json_bytes import to_json
from legacy_queue.domain.priority import PRIORITIES
from legacy_queue.domain.states import RESOLVED, UNRESOLVED
from legacy_queue.domain.task import Task
from legacy_queue.domain.times import age_words, duration_words, format_time, parse_time
from legacy_queue.history.picture import history_html, legend_html
from legacy_queue.history.words import requester
from legacy_queue.http.endpoint import Call, Endpoint
from legacy_queue.http.endpoints.control import clock_answer
from legacy_queue.http.endpoints.groups import group_wire
from legacy_queue.http.endpoints.inspect import SCOPE, SEARCHED, explained, pool_wire
from legacy_queue.http.endpoints.migration import migration
from legacy_queue.http.page.actions import page_endpoint, possible_actions
from legacy_queue.http.page.attention import attention
from legacy_queue.http.page.group_picture import group_rows
from legacy_queue.http.page.task_summary import LOGS, gravity, run_rows
from legacy_queue.http.paging import position_in, token_of
from legacy_queue.http.request_bodies import indented
from legacy_queue.http.request_journal import SELECTORS, SIZE
from legacy_queue.http.site import Site
from legacy_queue.ports import Corrupt
from legacy_queue.services.artifacts.artifacts import Artifacts
from legacy_queue.services.events.event_buffer import MAX_EVENTS
from legacy_queue.services.inspection.explanation import Wait
from legacy_queue.services.inspection.pools import Pool
from legacy_queue.services.inspection.recent_events import RECENT, recent_events
from legacy_queue.services.inspection.worker_states import WORKER_STATES, silent_after, workers_of
from legacy_queue.services.services import Services
from legacy_queue.services.tasks.listing import Wanted

_ORDERS: Mapping[str, Callable[[Pool], Any]] = {
    "name": lambda pool: pool.task_queue_id,
    "pending": lambda pool: (-pool.pending, pool.task_queue_id),
    "running": lambda pool: (-pool.running, pool.task_queue_id),
    "oldest": lambda pool: (pool.oldest or datetime.max.replace(tzinfo=UTC), pool.task_queue_id),
    "asked": lambda pool: pool.callers[0].last_call if pool.callers else datetime.min.replace(tzinfo=UTC),
}
_POOLS = 50  # on a page: with the longest names and tasks of every priority, a page has 57 kB
_TASKS = 50
_POOL_FILTERS = 8  # pools that the list of tasks can be filtered by: the ones with most tasks
_MAX_OF_TASK = 100  # dependents, and artifacts of a run
_MAX_DEFINITION = 100_000  # characters
_MAX_OF_GROUP = 1000  # tasks that are counted
_DRAWN = 200  # tasks of a group
_WORKERS = 75
_MIGRATING = 40  # pools
_REQUESTS = 80
_MAX_FILTERS = 12  # values of a selector
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",  # with "no-referrer", forms would lack their origin
    "Cache-Control": "no-store",
}
_TITLES = {  # by status
    400: "The queue cannot read this request",
    404: "There is nothing at this address",
    500: "The queue made an error",
    503: "The queue cannot answer now",
}

Values = dict[str, Any]  # of a template
View = Callable[[Call, Site], Values | Response]


def is_page(path: str) -> bool:
    """Whether a page answers at this path, so that errors there are pages too."""
    return path == "/" or path.startswith("/ui/")


def error_page(answer: Response) -> Response:
    """Turn the JSON of an error into a page that says what to do."""
    error = json.loads(answer.get_data())
    status = answer.status_code
    if request.url_rule is None:
        error["message"] = f"No page has the address {request.path}."
    is_signed_out = status == 401 or SCOPE in error["message"]
    values = {
        "error": error,
        "status": status,
        "title": "Sign in" if is_signed_out else _TITLES.get(status, "The queue refused this"),
        "is_signed_out": is_signed_out,
        "scope": SCOPE,
        "query": {},
    }
    answer.set_data(render_template("error.html", layout="layout.html", **values))
    answer.content_type = "text/html; charset=utf-8"
    answer.headers.update(_HEADERS)
    return answer


def when(time: str | datetime | None, now: str) -> Markup | str:
    """The time of day, with the date before it unless ``now`` is on the same day."""
    text = format_time(time) if isinstance(time, datetime) else time
    if not text:
        return ""
    shown = text[11:19] if text[:10] == now[:10] else f"{text[:10]} {text[11:19]}"
    return Markup('<time datetime="{}">{}</time>').format(text, shown)


def age(time: str | datetime | None, now: datetime) -> Markup | str:
    """``3 min ago``, or ``in 3 min`` for a time that has not come yet. The title is the time in UTC."""
    if not time:
        return ""
    then = parse_time(time) if isinstance(time, str) else time
    text = format_time(then)
    seconds = (now - then).total_seconds()
    words = age_words(abs(seconds))
    shown = "now" if words == "0 s" else f"{words} ago" if seconds > 0 else f"in {words}"
    title = f"{text[:10]} {text[11:19]} UTC"
    return Markup('<time datetime="{}" title="{}">{}</time>').format(text, title, shown)


def page(route: str, title: str, *query: str) -> Callable[[View], Endpoint]:
    """Declare the function below as a page. It returns the values for the template that has its name.

    The function is called only if the caller may see the pages. If the URL has a bewit, the browser is signed
    in and sent to the same page without it. A page whose route has no parameters is in the navigation.
    """

    def declared(view: View) -> Endpoint:
        @wraps(view)
        def handler(call: Call) -> Response:
            site = call.authorize()
            if call.identity and "bewit" in request.args:
                response = Response(status=303, headers={**_HEADERS, "Location": call.environ["PATH_INFO"]})
                site.sign_in.remember(response, call.identity)
                return response
            values = view(call, site)
            return values if isinstance(values, Response) else _rendered(view.__name__, call, site, values)

        return page_endpoint("GET", route, title, query=("part", *query))(handler)

    return declared


def _rendered(name: str, call: Call, site: Site, values: Values) -> Response:
    time = site.services.clock.now()
    now = format_time(time)
    clock = clock_answer(site.control.clock.state()) if site.control else None
    faults = site.faults.list() if site.control else ()
    text = render_template(
        f"{name.removesuffix('_page')}.html",
        layout="part.html" if "part" in call.query else "layout.html",
        exchanges=" ".join(EXCHANGES),
        now=now,
        when=partial(when, now=now),
        age=partial(age, now=time),
        query={name: value for name, value in call.query.items() if name != "part"},
        clock=clock,
        ahead=duration_words(abs(clock["offset"])) if clock else "",
        faults=[fault for fault in faults if not fault.get("times") or fault["fired"] < fault["times"]],
        **values,
    )
    return Response(text, headers=_HEADERS, content_type="text/html; charset=utf-8")


@page("/", "Overview", "after", "q", "sort")
def overview_page(call: Call, site: Site) -> Values:
    """What needs attention, how many tasks there are, and the pools. It reads no task and no message."""
    services = site.services
    buffer = services.event_buffer
    now = services.clock.now()
    recent = recent_events(buffer.page(0, buffer.last, MAX_EVENTS).events, now)
    pools = services.pools.overview()
    found = [pool for pool in pools if _is_named(pool.task_queue_id, call.query.get("q", "").split())]
    found.sort(key=_ORDERS[call.query.get("sort", "name")])
    start = min(int(call.query.get("after", 0)), max(0, len(found) - 1) // _POOLS * _POOLS)
    return {
        "pending": sum(pool.pending for pool in pools),
        "running": sum(pool.running for pool in pools),
        "recent": recent,
        "is_whole_hour": recent.since == now - RECENT,
        "has_others": bool(services.processes.others()),
        "attention": attention(site, pools, recent),
        "pools": found[start : start + _POOLS],
        "most": max((pool.pending for pool in pools), default=0),
        "total": len(found),
        "start": start,
        "next": start + _POOLS if start + _POOLS < len(found) else None,
    }


@page("/ui/pools/<provisionerId>/<workerType>", "Pool")
def pool_page(call: Call, site: Site) -> Values:
    """A pool: why its oldest task waits, its messages, its tasks and its workers."""
    services = site.services
    name = "/".join(call.params.values())
    pool = services.pools.pool(name)
    queues = services.task_queues
    listed = {state: queues.tasks(name, state, "", _TASKS, _row_json) for state in ("pending", "running")}
    tasks = {state: [*map(json.loads, page.items)] for state, page in listed.items()}
    oldest = [task["taskId"] for task in tasks["pending"][:1]]
    sees_polls = services.peeking.sees_polls
    waits: Sequence[Wait] = ()
    with suppress(ResourceNotFound):
        waits = [wait for task_id in oldest for wait in services.wait_reasons.of(task_id)[1]]
    wire = pool_wire(pool)
    return {
        "pool": wire,
        "rows": [*_rows(wire)],
        "tasks": tasks,
        "workers": [*workers_of(pool, queues.running(), services.clock.now(), sees_polls=sees_polls)],
        "names": {task["taskId"]: task["name"] for task in tasks["running"]},
        "oldest": oldest,
        "waits": waits,
        "gravity": gravity("pending", waits[0].situation) if waits else "",
        "left": duration_words,
        "is_known": bool(pool.callers or pool.pending or pool.running),
    }


@page("/ui/tasks", "Tasks", "continuationToken", "group", "pool", "q", "state")
def tasks_page(call: Call, site: Site) -> Values | Response:
    """The tasks that match the query. If the words are the name of something, it redirects to that page."""
    listing = site.services.listing
    query = call.query
    words = query.get("q", "").split()
    pools = site.services.pools.overview() if words else ()
    if place := [*query] == ["q"] and len(words) == 1 and _place_of(words[0], pools, site.services):
        return Response(status=303, headers={**_HEADERS, "Location": place})
    wanted = Wanted(query.get("state", "all"), query.get("pool", ""), query.get("group", ""), words)
    begin = position_in(call, TASK_ID if wanted.group_id else SEARCHED)
    found = listing.search(wanted, begin, _TASKS, _row_json)
    return {
        "tasks": [*map(json.loads, found.items)],
        "further": token_of(call, found.after) if found.after is not None else None,
        **_known_counts(site.services, query),
        "is_newest_first": listing.knows_age and not wanted.group_id,
        "other_pools": sum(_is_named(pool.task_queue_id, words) for pool in pools),
        "other_workers": sum(
            _is_named(f"{each.task_queue_id}/{each.name}", words) for pool in pools for each in pool.callers
        ),
    }


@page("/ui/tasks/<taskId>", "Task")
def task_page(call: Call, site: Site) -> Values:
    """A task: why it is in its state, its runs, what happened to it, and what you can do with it."""
    listing = site.services.listing
    artifacts = site.services.artifacts
    task = site.services.tasks.load(call.task_id)
    answer = explained(site, call.task_id)
    dependencies = [each for each in task.definition.dependencies if each != task.task_id]
    required = listing.tasks(dependencies, "", len(dependencies) + 1, _row_json)
    known = {row["taskId"]: row for row in map(json.loads, required.items)}
    dependents = listing.dependents(call.task_id, "", _MAX_OF_TASK, _row_json)
    lists = {
        run.run_id: artifacts.list(task.task_id, run.run_id, "", _MAX_OF_TASK, _artifact_json)
        for run in reversed(task.runs)
    }
    files = [{**json.loads(it), "runId": run_id} for run_id, page in lists.items() for it in page.items]
    return {
        "task": answer,
        "gravity": gravity(task.state, answer["waitsFor"][0]["situation"]),
        "created": task.definition.created,
        "definition": indented(task.definition.wire, _MAX_DEFINITION)[:_MAX_DEFINITION],
        "max_definition": _MAX_DEFINITION,
        "name": task.definition.wire["metadata"]["name"],
        "description": task.definition.wire["metadata"]["description"],
        "priority": task.priority,
        "picture": Markup(history_html(answer)),  # noqa: S704 - it is escaped there
        "legend": Markup(legend_html()),  # noqa: S704
        "runs": [*run_rows(answer, files, _log(artifacts, task))],
        "required": [(task_id, known.get(task_id)) for task_id in dependencies],
        "dependents": [*map(json.loads, dependents.items)],
        "more_dependents": dependents.after is not None,
        "artifacts": files,
        "cut": [run_id for run_id, page in lists.items() if page.after is not None],
        "artifact_path": _artifact_path,
        "root_url": site.root_url,
        "actions": possible_actions(call, site, task, answer),
        "token": site.sign_in.token(call.environ),
        "priorities": PRIORITIES,
    }


@page("/ui/groups/<taskGroupId>", "Group")
def group_page(call: Call, site: Site) -> Values:
    """A task group: its tasks in the order of their dependencies, which are drawn beside them."""
    group = site.services.groups.load(call.params["taskGroupId"])
    listed = site.services.listing.group(group.task_group_id, "", _MAX_OF_GROUP, _row_json)
    tasks = [*map(json.loads, listed.items)]
    counts = Counter(task["state"] for task in tasks)
    return {
        "group": group_wire(group),
        "tasks": tasks[:_DRAWN],
        "counted": len(tasks),
        "has_more": listed.after is not None,
        "counts": [(state, counts[state]) for state in (*UNRESOLVED, *RESOLVED) if counts[state]],
        "rows": [*group_rows(sorted(tasks, key=_by_age))] if len(tasks) <= _DRAWN else None,
    }


@page("/ui/workers", "Workers", "q", "workerState")
def workers_page(call: Call, site: Site) -> Values:
    """Who asked for work in the last ten days, the last first, and what each is doing."""
    services = site.services
    now, words = services.clock.now(), call.query.get("q", "").split()
    running = services.task_queues.running()
    workers = [
        worker
        for pool in services.pools.overview()
        for worker in workers_of(pool, running, now, sees_polls=services.peeking.sees_polls)
        if _is_named(f"{pool.task_queue_id}/{worker.caller.name}", words)
    ]
    wanted = call.query.get("workerState")
    found = [worker for worker in workers if wanted in (None, worker.state)]
    found.sort(key=lambda worker: worker.last_call, reverse=True)
    shown = found[:_WORKERS]
    return {
        "workers": shown,
        "names": dict(_names(services, [worker.running[-1] for worker in shown if worker.running])),
        "counts": Counter(worker.state for worker in workers),
        "states": ("", *WORKER_STATES),
        "total": len(found),
        "silent_after": age_words(silent_after(services.peeking.sees_polls).total_seconds()),
    }


def _names(services: Services, task_ids: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The names of the tasks that exist, mostly from memory."""
    for task_id in task_ids:
        with suppress(ResourceNotFound, Corrupt):
            yield task_id, services.tasks.recall(task_id).definition.wire["metadata"]["name"]


@page("/ui/requests", "Requests", *SELECTORS)
def requests_page(call: Call, site: Site) -> Values:
    """The last requests, the newest first: only with --control. How many there are by each selector."""
    journal = site.journal
    chosen = {name: call.query[name] for name in SELECTORS if name in call.query}
    found = journal.requests(SIZE, None, chosen)
    counts = journal.counts(chosen)
    return {
        "requests": found[: -_REQUESTS - 1 : -1],
        "total": len(found),
        "failed": counts["failed"],
        "filters": {
            name: sorted(counts[name].most_common(_MAX_FILTERS))
            for name in ("endpoint", "taskQueueId", "caller")
        },
        "selectors": SELECTORS,
        "requester": requester,
        "kept": SIZE,
    }


@page("/ui/migration", "Migration", "since")
def migration_page(call: Call, _site: Site) -> Values:
    """Which protocol each caller speaks, for who may call getMigration too."""
    return {"report": migration.handler(call.of(migration)), "max_pools": _MIGRATING}


def _by_age(row: Mapping[str, Any]) -> tuple[str, str]:
    return row["created"], row["name"]


def _row_json(task: Task) -> bytes:
    definition = task.definition
    more = {"name": definition.wire["metadata"]["name"], "dependencies": definition.dependencies}
    return to_json({**task.status(), **more, "created": format_time(definition.created)})


def _artifact_json(artifact: Artifact) -> bytes:
    return to_json(artifact.to_wire())


def _log(artifacts: Artifacts, task: Task) -> Values | None:
    """The log of the last run, as ``legacy-queue log`` finds it."""
    page = task.last_run and artifacts.list(task.task_id, task.last_run.run_id, LOGS, 1, _artifact_json)
    for file in map(json.loads, page.items if page else ()):
        if task.last_run and file["name"].startswith(LOGS):
            return {**file, "runId": task.last_run.run_id}
    return None


def _artifact_path(task_id: str, file: Mapping[str, Any]) -> str:
    """One segment for the name: a browser would follow the ``..`` of a longer path."""
    name = quote(file["name"], safe="")
    return f"/api/queue/v1/task/{task_id}/runs/{file['runId']}/artifacts/{name}"


def _rows(pool: Mapping[str, Any]) -> Iterator[Values]:
    """A row for each priority with tasks or messages. ``hidden``: the seconds until each one is visible."""
    for entry in pool["priorities"]:
        times = [it["visibleIn"] for it in pool["messages"] if it["priority"] == entry["priority"]]
        if times or entry["pendingTasks"] or entry["claimedTasks"]:
            hidden = [time for time in times if time]
            yield {**entry, "hidden": hidden, "visible": len(times) - len(hidden)}


def _known_counts(services: Services, query: Mapping[str, str]) -> Values:
    """How many tasks each filter would show, by state and by pool. Empty if only storage knows it."""
    by_state = Counter(pending=0, running=0)
    by_pool: Counter[str] = Counter()
    known = services.task_queues.known_counts(is_alone=not services.processes.others())
    if known is None or query.get("group") or query.get("q"):
        return {"by_state": {}, "by_pool": []}
    for (pool, _, state), counted in known.items():
        if query.get("pool", "") in ("", pool):
            by_state[state] += counted.count
        if query.get("state", "all") in ("all", "unresolved", state):
            by_pool[pool] += counted.count
    return {"by_state": by_state, "by_pool": by_pool.most_common(_POOL_FILTERS)}


def _is_named(name: str, words: Sequence[str]) -> bool:
    return all(word.casefold() in name.casefold() for word in words)


def _place_of(word: str, pools: Sequence[Pool], services: Services) -> str | None:
    """The page of the task, task group, pool or worker that has this name; None if nothing has it."""
    if re.fullmatch(TASK_ID, word):
        for kind, load in (("tasks", services.tasks.load), ("groups", services.groups.load)):
            with suppress(ResourceNotFound):
                load(word)
                return f"/ui/{kind}/{word}"
    for pool in pools:
        if word == pool.task_queue_id:
            return f"/ui/pools/{word}"
        workers = [caller.worker.path[-1] for caller in pool.callers if caller.worker]
        if word in (*workers, *(caller.name for caller in pool.callers)):
            return f"/ui/workers?q={quote(word)}"
    return None
