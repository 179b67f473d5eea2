import errno
from typing import Any

import pytest
from gunicorn.app.base import BaseApplication
from structlog.testing import capture_logs

from legacy_queue.server.arbiter import Arbiter


class Application(BaseApplication):
    def load_config(self) -> None: ...

    def load(self) -> Any: ...


@pytest.mark.parametrize(("others", "code"), [({}, Arbiter.WORKER_BOOT_ERROR), ({2: None}, 1)])
def test_a_process_that_cannot_begin_ends_the_server_only_if_it_is_the_first(
    others: dict[int, Any], code: int
) -> None:
    def fail(_arbiter: object, worker: Any) -> None:
        worker.tmp.close()
        raise SystemExit(Arbiter.WORKER_BOOT_ERROR)  # as in the new process

    class Parent(Arbiter):
        WORKERS = others

    application = Application()
    application.cfg.set("pre_fork", fail)
    arbiter = Parent(application, None, in_memory=False)
    arbiter.pid = 1
    with pytest.raises(SystemExit) as ended:
        arbiter.spawn_worker()
    assert ended.value.code == code


@pytest.mark.parametrize("in_memory", [False, True])
def test_where_the_system_has_no_room_for_a_process_the_server_goes_on(in_memory: bool) -> None:
    def refuse(_arbiter: object, worker: Any) -> None:
        worker.tmp.close()
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    application = Application()
    application.cfg.set("pre_fork", refuse)
    arbiter = Arbiter(application, None, in_memory)
    arbiter.pid = 1
    with capture_logs() as logs:
        for _ in range(2):
            arbiter.spawn_worker()
    assert [(line["event"], line["error"]) for line in logs] == [
        ("server-process-not-started", "Resource temporarily unavailable")
    ]
    assert arbiter.worker_age == 0, "the next process is the first"
