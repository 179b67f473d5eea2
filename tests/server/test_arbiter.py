import errno
from typing import Any, ClassVar

import pytest
from gunicorn.app.base import BaseApplication
from structlog.testing import capture_logs

from legacy_queue.server.arbiter import Arbiter


class Application(BaseApplication):
    def load_config(self) -> None: ...

    def load(self) -> Any: ...


def arbiter(fork: BaseException, in_memory: bool = False, others: int = 0) -> Arbiter:
    """An arbiter that has this many other processes and whose next fork raises this error."""

    def fail(_arbiter: object, worker: Any) -> None:
        worker.tmp.close()
        raise fork

    application = Application()
    application.cfg.set("pre_fork", fail)

    class Parent(Arbiter):
        WORKERS: ClassVar[dict[int, Any]] = dict.fromkeys(range(others))
        pid = 1

    return Parent(application, None, in_memory)


@pytest.mark.parametrize(("others", "code"), [(0, Arbiter.WORKER_BOOT_ERROR), (1, 1)])
def test_a_process_that_cannot_start_ends_the_server_only_if_it_is_the_first(others: int, code: int) -> None:
    with pytest.raises(SystemExit) as ended:  # what the new process would raise
        arbiter(SystemExit(Arbiter.WORKER_BOOT_ERROR), others=others).spawn_worker()
    assert ended.value.code == code


@pytest.mark.parametrize("in_memory", [False, True])
def test_if_the_system_cannot_start_another_process_the_server_goes_on(in_memory: bool) -> None:
    short = arbiter(BlockingIOError(errno.EAGAIN, "no room"), in_memory)
    with capture_logs() as logs:
        for _ in range(2):
            short.spawn_worker()
    assert [(line["event"], line["error"]) for line in logs] == [("server-process-not-started", "no room")]
    assert short.worker_age == 0, "the next process still counts as the first"
