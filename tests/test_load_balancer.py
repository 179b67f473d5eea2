"""deploy/nginx: calls about one thing go to one server. nginx itself was tried by hand."""

import re
from pathlib import Path
from urllib.parse import unquote

import pytest

from legacy_queue.domain.ids import slugid
from legacy_queue.http.app import ENDPOINTS

pytestmark = pytest.mark.processes

DEPLOY = Path(__file__).parents[1] / "deploy"
CONFIGURATION = (DEPLOY / "nginx/legacy-queue.conf").read_text()
VARIABLE, BODY = re.findall(r"map \$uri (\$\w+) \{(.*?)\n\}", CONFIGURATION, re.DOTALL)[0]
PATTERNS = re.findall(r"^ +~(\S+) \$(\w+);$", BODY, re.MULTILINE)
TASK_ID = slugid()
POOL = "provisioner/worker-Type_1"


def about(path: str) -> str | None:
    """What a request is routed by; None: by nothing."""
    for pattern, name in PATTERNS:
        if found := re.search(pattern.replace("(?<", "(?P<"), unquote(path)):
            return str(found[name])
    return None


def paths(part: str) -> list[str]:
    """The paths of all routes with that part, of the years before and after 2019."""
    routes = {route for endpoint in ENDPOINTS for route in endpoint.routes if part in f"{route}/"}
    assert routes
    return [f"{prefix}{route}" for route in routes for prefix in ("/v1", "/api/queue/v1")]


def test_all_calls_about_a_task_go_to_one_server() -> None:
    for path in paths("<taskId>/"):
        assert about(path.replace("<taskId>", TASK_ID)) == TASK_ID, path


def test_all_waits_for_a_worker_type_go_to_one_server() -> None:
    provisioner_id, worker_type = POOL.split("/")
    for path in paths("/claim-work/"):
        path = path.replace("<provisionerId>", provisioner_id).replace("<workerType>", worker_type)
        assert about(path.replace("<taskQueueId>", POOL.replace("/", "%2F"))) == POOL, path


def test_other_calls_go_anywhere() -> None:
    assert about("/v1/ping") is None
    assert about(f"/v1/task-group/{TASK_ID}/list") is None
    assert "default $request_id;" in BODY


def test_upstream_and_ingress_hash_what_the_map_finds() -> None:
    assert f"hash {VARIABLE} consistent;" in CONFIGURATION
    assert f'upstream-hash-by: "{VARIABLE}"' in (DEPLOY / "kubernetes/ingress.yaml").read_text()
