"""``GET /``: the state of the queue for eyes. It shows what ``/inspect/v1`` and the journal say.

It is rendered here, and its script only fetches it again. Nothing that a task's author wrote is HTML.
"""

import json
from collections.abc import Mapping
from typing import Any

from flask import Response, render_template

from legacy_queue.domain.errors import AuthenticationFailed, InsufficientScopes
from legacy_queue.domain.events import EXCHANGES
from legacy_queue.domain.json_bytes import to_json
from legacy_queue.domain.story import request_words
from legacy_queue.domain.task import Task
from legacy_queue.domain.times import format_time
from legacy_queue.http.endpoint import Call, Endpoint, endpoint
from legacy_queue.http.endpoints.control import ControlServices, clock_answer
from legacy_queue.http.endpoints.inspect import SCOPE, explained, pool_wire, selected
from legacy_queue.http.page.sign_in import SignIn
from legacy_queue.http.request_journal import Journal
from legacy_queue.http.request_log import record_of
from legacy_queue.ports import Clock
from legacy_queue.services.inspection.inspection import Inspection
from legacy_queue.services.tasks.listing import Listing

_TASKS = 50  # at once
_MAX_PAGES = 20  # of tasks that are looked at for them
_POOLS = 100
_REFUSALS = 20
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
_NOT_SIGNED_IN = (
    f"This page is for those who have the scope {SCOPE}. `legacy-queue open` prints a link that signs a "
    "browser in, within minutes. A link on another page does not lead here: open it yourself.\n"
)


def page_endpoint(sign_in: SignIn, control: ControlServices | None) -> Endpoint:
    """The page. A link with a bewit signs the browser in, and leads to the page without the bewit."""

    @endpoint(
        "GET",
        "/",
        "Page",
        scopes=SCOPE,
        service="inspect",
        query=("behind", "state", "taskId", "taskQueueId"),
        sign_in=sign_in.identity,
    )
    def page(call: Call[tuple[Inspection, Listing, Journal, Clock]]) -> Response:
        """The state of the queue as a page for a browser."""
        try:
            inspection, listing, journal, clock = call.authorize()
        except (AuthenticationFailed, InsufficientScopes) as refusal:
            record_of(call.environ).refusal = refusal
            return Response(_NOT_SIGNED_IN, refusal.status, _HEADERS, content_type="text/plain")
        if call.identity and "bewit=" in call.environ.get("QUERY_STRING", ""):
            response = Response(status=303, headers={**_HEADERS, "Location": "/"})
            sign_in.remember(response, call.identity)
            return response
        query = call.query
        pools = inspection.pools("", _POOLS, lambda pool: to_json(pool_wire(pool)))
        tasks, behind = _some_tasks(listing, query)
        text = render_template(
            "page.html",
            exchanges=" ".join(EXCHANGES),
            now=format_time(clock.now()),
            query=query,
            task=explained(inspection, journal, clock, query["taskId"]) if "taskId" in query else None,
            pools=[json.loads(pool) for pool in pools.items],
            tasks=tasks,
            behind=behind,
            refusals=[
                {"time": request["time"], "what": request_words(request), "taskId": request.get("taskId")}
                for request in reversed(journal.requests(_REFUSALS, None, {"failed": "true"}))
            ],
            clock=clock_answer(control.clock.state()) if control else None,
            faults=control.faults.list() if control else (),
        )
        return Response(text, headers=_HEADERS, content_type="text/html")

    return page


def _some_tasks(listing: Listing, query: Mapping[str, str]) -> tuple[list[Any], str | None]:
    """The next tasks that the query selects, and the task behind which more may follow."""
    tasks: list[Any] = []
    behind: str | None = query.get("behind", "")
    for _ in range(_MAX_PAGES):
        if behind is not None and len(tasks) < _TASKS:
            page = listing.all_tasks(*selected(query), behind, _TASKS - len(tasks), _task)
            tasks += map(json.loads, page.items)
            behind = page.after
    return tasks, behind


def _task(task: Task) -> bytes:
    metadata: Mapping[str, Any] = task.definition.wire["metadata"]
    return to_json({**task.status(), "name": metadata["name"]})
