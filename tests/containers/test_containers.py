"""The image, built and run by podman, as one container with everything and as the services of compose.yaml.

The client and the sample worker run outside the containers.
"""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import requests

from legacy_queue.domain.ids import slugid
from legacy_queue.testing.server_process import client_variables
from tests.clients.python import taskcluster
from tests.domain.sample_tasks import task_body
from tests.system.http_queue import in_time
from tests.system.processes import LONG, run, wait_until

from .engine import IMAGE, LABELS, ROOT, Services, build, build_images, image_options, podman

# The first test waits for the builds. The first build on a machine installs everything in the image
pytestmark = [pytest.mark.timeout(900), pytest.mark.nightly]


@pytest.fixture(scope="module", autouse=True)
def images(tmp_path_factory: pytest.TempPathFactory) -> None:
    build_images(tmp_path_factory.mktemp("build"))


@pytest.fixture(scope="module")
def all_in_one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    with Services(tmp_path_factory.mktemp("one")) as services:
        services.compose("--profile", "all-in-one", "up", "--detach", "--no-build", "all-in-one")
        yield services


@pytest.fixture(scope="module")
def compose(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    with Services(tmp_path_factory.mktemp("compose")) as services:
        services.compose("up", "--detach", "--no-build")
        yield services


def queue_at(root_url: str, credentials: dict[str, str]) -> taskcluster.Queue:
    return taskcluster.Queue({"baseUrl": f"{root_url}/v1", "credentials": credentials})


def task(**changes: Any) -> dict[str, Any]:
    command = {"command": ["sh", "-c", "echo it ran outside"]}
    return task_body(datetime.now(UTC), **{"workerType": "outside", "payload": command, **changes})


def work(folder: Path, root_url: str, credentials: dict[str, str]) -> None:
    """Let the sample worker run one task, outside the containers."""
    env = client_variables({"rootUrl": root_url, "credentials": credentials})
    with run(folder, "worker", "provisioner/outside", "--max-tasks", "1", env=env) as worker:
        assert worker.wait() == 0, worker.errors


def log_of(queue: taskcluster.Queue, task_id: str) -> str:
    url = queue.buildUrl("getLatestArtifact", task_id, "public/logs/live.log")
    return requests.get(url, timeout=LONG).text


def test_the_all_in_one_container_keeps_a_task_across_a_restart(all_in_one: Services, tmp_path: Path) -> None:
    credentials = all_in_one.ready_line("all-in-one")["credentials"]
    root_url, container = all_in_one.root_url(), all_in_one.container("all-in-one")
    all_in_one.wait_until_healthy("all-in-one")
    queue, task_id = queue_at(root_url, credentials), slugid()
    queue.createTask(task_id, task())
    work(tmp_path, root_url, credentials)
    podman("stop", "--time", "60", container)
    assert podman("inspect", "--format", "{{.State.ExitCode}}", container).strip() == "0"
    podman("start", container)
    all_in_one.wait_until_healthy("all-in-one")
    assert queue.status(task_id)["status"]["state"] == "completed"
    assert "it ran outside" in log_of(queue, task_id)


def test_the_all_in_one_container_warns_runs_tini_first_and_runs_no_process_as_root(
    all_in_one: Services,
) -> None:
    all_in_one.ready_line("all-in-one")
    assert "development-client-is-open" in all_in_one.logs("all-in-one")
    answer = requests.get(f"{all_in_one.root_url()}/nowhere", timeout=LONG)
    assert (answer.status_code, "x-legacy-queue-development" in answer.headers) == (404, True)
    listed = podman("top", all_in_one.container("all-in-one"), "user,pid,comm").splitlines()[1:]
    assert {line.split()[0] for line in listed} == {"legacy-queue"}
    assert ["1", "tini"] in [line.split()[1:] for line in listed]
    assert len(listed) >= 3, "tini, the server and its worker"


def test_the_image_runs_a_task_even_if_only_its_volume_and_tmp_are_writable() -> None:
    guards = ("--read-only", "--read-only-tmpfs=false", "--cap-drop=all", "--security-opt=no-new-privileges")
    options = (*guards, "--tmpfs=/tmp", "--volume=/data", "--network=none")
    demo = podman("run", "--rm", *options, IMAGE, "up", "--demo", "--host", "127.0.0.1")
    assert "is completed, run 0" in demo
    script = "touch /opt/legacy-queue/a || touch /usr/a || touch /var/tmp/a || echo none"
    assert podman("run", "--rm", *options, "--entrypoint=sh", IMAGE, "-c", script) == "none\n"


def test_the_image_has_the_same_layers_when_it_is_built_again(tmp_path: Path) -> None:
    tags = [f"{IMAGE}:first", f"{IMAGE}:second"]
    for tag in tags:
        build("--tag", tag, "--no-cache", "--timestamp=0", *image_options(tmp_path), ROOT)
    first, second = (podman("image", "inspect", "--format", "{{.RootFS.Layers}}", tag) for tag in tags)
    assert first == second


def test_the_image_names_its_source_and_has_no_installer_no_secret_and_no_build_setting() -> None:
    [image] = json.loads(podman("image", "inspect", IMAGE))
    labels = {f"org.opencontainers.image.{name.lower()}": value for name, value in LABELS.items()}
    assert labels.items() <= image["Labels"].items()
    names = {variable.partition("=")[0] for variable in image["Config"]["Env"]}
    assert names == {"PATH", *(f"LEGACY_QUEUE_{name}" for name in ("DATA_DIR", "HOST"))}
    # files that only root can read, and files that a mount left empty
    script = "cat /etc/pip.conf /data/* 2>/dev/null; ls /opt/legacy-queue/bin | grep pip; true"
    assert podman("run", "--rm", "--user", "0", "--entrypoint", "sh", IMAGE, "-c", script) == ""


def test_two_servers_with_azurite_and_rabbitmq_work_as_one_queue(compose: Services, tmp_path: Path) -> None:
    lines = (compose.folder / "secrets/client.env").read_text().splitlines()
    client_id, token = (line.partition("=")[2] for line in lines)
    credentials = {"clientId": client_id, "accessToken": token}
    for service in ("azurite", "rabbitmq", "server-1", "server-2"):
        compose.wait_until_healthy(service)
    first, second = (queue_at(compose.root_url(number), credentials) for number in (1, 2))
    task_id, late = slugid(), slugid()
    first.createTask(late, task(workerType="unclaimed", deadline=in_time(seconds=3)))
    first.createTask(task_id, task())
    work(tmp_path, compose.root_url(2), credentials)
    assert first.status(task_id)["status"]["state"] == "completed"
    assert "it ran outside" in log_of(second, task_id)
    wait_until(lambda: second.status(late)["status"]["state"] == "exception")
    listing = ("exec", compose.container("rabbitmq"), "rabbitmqctl", "--quiet", "list_exchanges", "name")
    assert "exchange/taskcluster-queue/v1/task-completed" in podman(*listing).split()


def test_no_service_can_write_to_its_image_or_gain_privileges(compose: Services) -> None:
    for service in ("server-1", "server-2", "azurite", "rabbitmq"):
        [container] = json.loads(podman("container", "inspect", compose.container(service)))
        assert container["HostConfig"]["ReadonlyRootfs"], service
        assert container["EffectiveCaps"] in (None, []), service
        assert "no-new-privileges" in str(container["HostConfig"]["SecurityOpt"]), service
        assert ":" in container["ImageName"].rpartition("/")[2], f"the image of {service} has no version"
