"""Lets tests call a PyPI client, like ``call.js``: taskcluster 3.0.2 or, with the Python of ``.venv``, the
newest.

Reads one line of JSON for each job from stdin: ``{job, options, method, args[, query]}``. Prints one line of
JSON for each: ``{answer}``, or ``{refused: {status, body}}`` if the server answered with an error. Ends when
stdin ends. ``options`` are the client's options.
"""

import base64
import json
import sys
from typing import Any

from tests.clients.python import taskcluster


def _call(queue: Any, job: dict[str, Any]) -> Any:
    method, args = getattr(queue, job["method"]), job["args"]
    if not job.get("query"):
        return method(*args)
    names = queue.funcinfo[job["method"]]["args"]
    payload = {"payload": args[-1]} if len(args) > len(names) else {}
    return method(params=dict(zip(names, args, strict=False)), query=job["query"], **payload)


def _signed_url(queue: Any, job: dict[str, Any]) -> str:
    *args, life = job["args"]
    # 3.0.2 would take it for an argument of the method
    queue.options["signedUrlExpiration"] = life["expiration"]
    return str(queue.buildSignedUrl(job["method"], *args))


def _put_object(queue: Any, job: dict[str, Any]) -> None:
    """Create an artifact of the type object, from createArtifact to finishArtifact. The content is base64."""
    from taskcluster.upload import uploadFromBuf

    *run, name, body, content = job["args"]
    created, data = queue.createArtifact(*run, name, body), base64.b64decode(content)
    uploadFromBuf(
        data=data,
        contentLength=len(data),
        objectService=taskcluster.Object({**job["options"], "credentials": created["credentials"]}),
        contentType=body["contentType"],
        **{key: created[key] for key in ("name", "projectId", "uploadId", "expires")},
    )
    queue.finishArtifact(*run, name, {"uploadId": created["uploadId"]})


def _download(queue: Any, job: dict[str, Any]) -> dict[str, Any]:
    """The content of an artifact in base64 and its type, or the reason of an artifact of the type error."""
    from taskcluster.download import downloadArtifactToBuf

    run = dict(zip(("taskId", "runId", "name"), job["args"], strict=True))
    try:
        content, content_type = downloadArtifactToBuf(**run, queueService=queue)
    except taskcluster.exceptions.TaskclusterArtifactError as error:
        return {"reason": error.reason}
    return {"content": base64.b64encode(content).decode(), "contentType": content_type}


_JOBS = {
    "putObject": _put_object,
    "download": _download,
    # the HTTP method and the route of each method of the client
    "methods": lambda queue, _: {
        name: [entry["method"].upper(), entry["route"]] for name, entry in queue.funcinfo.items()
    },
    "call": _call,
    "url": lambda queue, job: queue.buildUrl(job["method"], *job["args"]),
    "signedUrl": _signed_url,
}

for line in sys.stdin:
    job = json.loads(line)
    queue = taskcluster.Queue(job["options"])
    try:
        result = {"answer": _JOBS[job["job"]](queue, job)}
    except (taskcluster.TaskclusterRestFailure, taskcluster.TaskclusterAuthFailure) as failure:
        result = {"refused": {"status": failure.status_code, "body": failure.body}}
    finally:
        queue.session.close()
    sys.stdout.write(json.dumps(result) + "\n")
    sys.stdout.flush()
