"""A PyPI client, called from elsewhere as ``call.js`` is: taskcluster 3.0.2 or, in ``.venv``, the newest.

Reads a line of JSON for each job on stdin, ``{job, options, method, args[, query]}``, and prints a line of
JSON for each: ``{answer}``, or ``{refused: {status, body}}`` for an error that the server answered with. Ends
with stdin. ``options`` are the client's.
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
    queue.options["signedUrlExpiration"] = life["expiration"]  # 3.0.2 takes an argument for the method's
    return str(queue.buildSignedUrl(job["method"], *args))


def _put_object(queue: Any, job: dict[str, Any]) -> None:
    """An artifact of the type object, from createArtifact to finishArtifact; the content in base64."""
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
    """The content of an artifact, in base64, and its type; or the reason of one that is an error."""
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
    # the HTTP method and the route of each method that the client knows
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
