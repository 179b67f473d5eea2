"""Lists in pages: how many are asked for, and the token with which a list goes on."""

import base64
import hashlib
import json
import re

from legacy_queue.domain.errors import InvalidRequestArguments
from legacy_queue.http.endpoint import Call

PAGED = ("continuationToken", "limit")

_MOST = 1000


def limit(call: Call) -> int:
    """How many the caller wants at most."""
    return int(call.query.get("limit", _MOST))


def continued(call: Call, list_id: str, after: str | None) -> dict[str, str]:
    """The continuationToken of a page that goes on behind ``after``; nothing where that is None."""
    return {} if after is None else {"continuationToken": _token(call.name, list_id, after)}


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
