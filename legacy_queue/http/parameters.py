"""The parameters of routes and of queries, and what each must match."""

import re

from legacy_queue.domain.ids import IDENTIFIER, IN_WORDS, RUN_ID, TASK_ID, TASK_QUEUE_ID, TODAYS_TASK_QUEUE_ID
from legacy_queue.domain.object_access import OBJECT_NAME
from legacy_queue.domain.states import RESOLVED, UNRESOLVED
from legacy_queue.http.schema_properties import ASCII, SHA256, SOURCE, URL

# a topic of AMQP 0-9-1. A * or # inside a word is refused, because AMQP would not read it as a wildcard
_TOPIC_PATTERN = r"(?=[ -~]{1,255}\Z)(?:[*#]|[^.*#]*)(?:\.(?:[*#]|[^.*#]*))*"
_LIMIT = r"(?:1000|[1-9][0-9]{0,2})"
_REQUEST_NUMBER = r"0|[1-9][0-9]{0,15}"
FAULT_ID = r"[0-9a-f]{8}"

PARAMETERS = {
    **dict.fromkeys(("taskId", "taskGroupId", "group"), TASK_ID),
    "runId": RUN_ID,
    **dict.fromkeys(("provisionerId", "workerType", "workerGroup", "workerId"), IDENTIFIER),
    **dict.fromkeys(("taskQueueId", "pool"), TASK_QUEUE_ID),
    "q": r"[^\x00-\x1f\x7f]{0,200}",
    "sort": r"name|pending|running|oldest|asked",
    "part": r"live",
    "quarantined": r"true|false",
    "workerState": r"busy|idle|silent|quarantined",
    "caller": r"[ -~]{1,255}",  # workerGroup/workerId, or a clientId
    "state": "|".join(("all", "unresolved", *UNRESOLVED, *RESOLVED)),
    **dict.fromkeys(("follow", "failed"), r"true|false"),
    "endpoint": r"[A-Za-z.]{1,100}",
    "name": r"[ -~]{1,1024}",
    "objectName": OBJECT_NAME,
    "continuationToken": r"[A-Za-z0-9_.-]{0,3500}",  # may contain the escaped name of an artifact
    "limit": _LIMIT,
    "exchange": r"[ -~]{1,255}",
    "routingKey": _TOPIC_PATTERN,
    "since": r"[ -~]{0,40}",
    "lastEventId": r"[!-~]{1,255}",
    "after": _REQUEST_NUMBER,
    "faultId": FAULT_ID,
}
_IN_WORDS = {
    **IN_WORDS,
    TODAYS_TASK_QUEUE_ID: "<provisionerId>/<workerType>. The workerType begins with a lowercase letter, has "
    "at most 38 lowercase letters, digits and hyphens, and does not end with a hyphen",
    OBJECT_NAME: "t/<taskId>/<runId>/<name of the artifact>",
    _TOPIC_PATTERN: "at most 255 ASCII characters. As a wildcard, * or # must be a whole word between dots",
    _LIMIT: "a number from 1 to 1000",
    _REQUEST_NUMBER: "0 or a number of at most 16 digits",
    FAULT_ID: "8 hexadecimal digits",
    URL: "a URL that begins with http:// or https://",
    SOURCE: "a URL that begins with http://, https://, ssh:// or git@",
    ASCII: "printable ASCII characters",
    r"[ -~]{1,255}": "1 to 255 printable ASCII characters",
    r"[ -~]{1,1024}": "1 to 1024 printable ASCII characters",
    r"[A-Za-z.]{1,100}": "1 to 100 letters and dots",
    SHA256: "64 hexadecimal digits",
}


def in_words(pattern: str) -> str:
    """Returns what an error says in place of the pattern."""
    if re.fullmatch("[a-z|-]+", pattern):
        return f"one of {pattern.replace('|', ', ')}"
    bare = pattern.removeprefix("^").removesuffix("$")  # as in the schema of a body
    return _IN_WORDS.get(bare) or _IN_WORDS.get(bare[3:-1], f"a match of {pattern}")  # without (?: and )
