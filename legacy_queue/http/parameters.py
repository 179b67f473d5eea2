"""The parameters of routes and of queries, and what each must match."""

from legacy_queue.domain.ids import IDENTIFIER, RUN_ID, TASK_ID, TASK_QUEUE_ID
from legacy_queue.domain.object_access import OBJECT_NAME
from legacy_queue.domain.states import RESOLVED, UNRESOLVED

# a topic of AMQP 0-9-1. A * or # inside a word is refused, because AMQP would not read it as a wildcard
_TOPIC_PATTERN = r"(?=[ -~]{1,255}\Z)(?:[*#]|[^.*#]*)(?:\.(?:[*#]|[^.*#]*))*"

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
    "limit": r"(?:1000|[1-9][0-9]{0,2})",
    "exchange": r"[ -~]{1,255}",
    "routingKey": _TOPIC_PATTERN,
    "since": r"[ -~]{0,40}",
    "lastEventId": r"[!-~]{1,255}",
    "after": r"0|[1-9][0-9]{0,15}",
    "faultId": r"[0-9a-f]{8}",
}
