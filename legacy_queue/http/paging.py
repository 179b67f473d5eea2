"""Lists in pages: how many are asked for, and the token with which a list goes on."""

import base64
import hashlib
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from flask import Response

from legacy_queue.domain.errors import InvalidRequestArguments
from legacy_queue.http.endpoint import Call
from legacy_queue.services import Services
from legacy_queue.services.pages import Page

Place = TypeVar("Place")

PAGED = ("continuationToken", "limit")

_MOST = 1000


def limit(call: Call) -> int:
    """How many the caller wants at most."""
    return int(call.query.get("limit", _MOST))


def render(item: Any) -> bytes:
    """JSON."""
    return json.dumps(item).encode()


def page_answer(
    call: Call,
    services: Services,
    list_id: str,
    name: str,
    ask: Callable[[], Page[Place]],
    *,
    beside: Mapping[str, str] | None = None,
    place: Callable[[Place], str] = str,
) -> Response:
    """The page that ``ask`` gives, as the list ``name`` and what is ``beside`` it.

    ``place`` is what its continuationToken holds, if the list goes on. The page counts among the memory of
    all listings until it is sent.
    """
    memory = services.page_memory.acquire()
    try:
        page = ask()
        properties = dict(beside or {})
        if page.after is not None:
            properties["continuationToken"] = _token(call.name, list_id, place(page.after))
        start = render({**properties, name: []}).removesuffix(b"]}")
        body = b"".join((start, b", ".join(page.items), b"]}"))
        memory.keep(len(body))
        response = Response(body, content_type="application/json")
        response.call_on_close(memory.release)
    except BaseException:
        memory.release()
        raise
    return response


def after(call: Call, list_id: str, pattern: str) -> str:
    """Where the caller's token says that this list goes on, which the pattern matches; "", its beginning.

    An empty token is none: so a JavaScript client sends one that is undefined.
    """
    token = call.query.get("continuationToken")
    if not token:
        return ""
    try:
        content = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        place = str(content["after"])
    except (ValueError, KeyError, TypeError, RecursionError):
        place = ""
    if not re.fullmatch(pattern, place) or token != _token(call.name, list_id, place):
        raise InvalidRequestArguments(
            f"continuationToken is {token[:300]!r}: one is accepted that {call.name} gave for {list_id}"
        )
    return place


def _token(name: str, list_id: str, after: str) -> str:
    """The check tells a token that was cut, changed, or given for another list."""
    check = hashlib.sha256(f"{name}/{list_id}/{after}".encode()).hexdigest()[:16]
    content = json.dumps({"list": name, "of": list_id, "after": after, "check": check})
    return base64.urlsafe_b64encode(content.encode()).decode().rstrip("=")
