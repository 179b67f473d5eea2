"""Returns lists in pages. A page has a limit, and a token with which the caller asks for the next page."""

import base64
import hashlib
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any

from flask import Response

from legacy_queue.domain.errors import InvalidRequestArguments
from legacy_queue.domain.hawk import decode_base64
from legacy_queue.domain.ids import IDENTIFIER
from legacy_queue.domain.json_bytes import to_json
from legacy_queue.domain.worker_record import RecordPlace
from legacy_queue.http.endpoint import Call
from legacy_queue.services.pagination import Page

PAGED = ("continuationToken", "limit")
_MAX_LIMIT = 1000
_ONE_LIST = "all"  # the id of a list if its endpoint has only this one

RenderItem = Callable[[Any], bytes]
ToWire = Callable[[Any], Any]  # a task or the like


def page_answer(
    call: Call,
    name: str,
    pattern: str,
    ask: Callable[[str, int, RenderItem], Page[str]],
    to_wire: ToWire,
    header: Mapping[str, str] = MappingProxyType({}),
) -> Response:
    """Returns the page of ``ask`` as the list ``name``, after the properties in ``header``.

    ``ask`` gets the position after which the page begins ("" for the first page), the limit, and a function
    that renders an item. ``to_wire`` makes the item ready for JSON. Every position matches the pattern.
    Raises InvalidRequestArguments for the continuationToken of another list.
    """
    begin = position_in(call, pattern)
    page = ask(
        begin,
        int(call.query.get("limit", _MAX_LIMIT)),
        lambda item: to_json(call.shaped({name: to_wire(item)})[name]),
    )
    properties = {**header, **({} if page.total is None else {"total": page.total})}
    if page.after is not None:
        properties["continuationToken"] = token_of(call, page.after)
    start = to_json(call.shaped({**properties, name: []})).removesuffix(b"]}")
    body = b"".join((start, b",".join(page.items), b"]}"))
    return Response(body, content_type="application/json")


def path_page_answer(
    call: Call,
    name: str,
    depth: int,
    ask: Callable[[RecordPlace, int, RenderItem], Page[RecordPlace]],
    to_wire: ToWire,
) -> Response:
    """Does the same as ``page_answer`` if a position is a path of ``depth`` identifiers, () at first."""

    def ask_text(after: str, limit: int, render: RenderItem) -> Page[str]:
        page = ask(tuple(after.split("/")) if after else (), limit, render)
        return Page(page.items, "/".join(page.after) if page.after else None)

    return page_answer(call, name, "/".join([IDENTIFIER] * depth), ask_text, to_wire)


def token_of(call: Call, position: str) -> str:
    """The continuationToken of the page that begins after the position.

    Its second half reveals a token that was cut or changed, or that belongs to another list. It catches
    mistakes only: a client can compute it.
    """
    text = base64.urlsafe_b64encode(position.encode()).decode().rstrip("=")
    check = hashlib.sha256("\n".join((call.endpoint.name, _list_id(call), position)).encode()).hexdigest()
    return f"{text}.{check[:16]}"


def position_in(call: Call, pattern: str) -> str:
    """The position in the caller's token, or "" if there is none. JavaScript clients send "" for undefined.

    Raises InvalidRequestArguments if ``token_of`` would not make this token of a position that matches the
    pattern.
    """
    token = call.query.get("continuationToken")
    if not token:
        return ""
    with suppress(ValueError):
        position = decode_base64(token.partition(".")[0]).decode()
        if token == token_of(call, position) and re.fullmatch(pattern, position):
            return position
    list_id = _list_id(call)
    of_list = f" for {list_id}" if list_id != _ONE_LIST else ""
    raise InvalidRequestArguments(
        f"continuationToken is {token[:300]!r}: expected one that {call.endpoint.name} has returned{of_list}"
    )


def _list_id(call: Call) -> str:
    of_body = f"the body with the hash {hashlib.sha256(to_json(call.body)).hexdigest()}" if call.body else ""
    # taskQueueId only repeats the provisionerId and the workerType
    ids = [value for name, value in call.params.items() if name != "taskQueueId"]
    filters = [
        f"{name}={value}" for name, value in sorted(call.query.items()) if name not in (*PAGED, "part")
    ]
    return "/".join([*ids, *filters]) or of_body or _ONE_LIST
