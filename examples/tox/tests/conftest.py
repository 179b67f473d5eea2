import pytest
from legacy_worker import Queue, Worker


@pytest.fixture(params=["draft", "deployed"])
def protocol(request):
    return request.param


@pytest.fixture
def new_worker(legacy_queue, protocol):
    """``new_worker("two")`` returns a worker of that name for the pool examples/builds. It never sleeps."""

    def make(worker_id="one"):
        queue = Queue(legacy_queue.base_url, legacy_queue.credentials, sleep=lambda _seconds: None)
        return Worker(queue, "examples", "builds", "examples", worker_id, protocol)

    return make


@pytest.fixture
def create_task(legacy_queue):
    """``create_task("true")`` creates a task for examples/builds with this command, and returns its id."""

    def create(*command, **payload):
        body = payload or {"command": [*command]}
        return legacy_queue.create_task(provisioner_id="examples", worker_type="builds", payload=body)

    return create
