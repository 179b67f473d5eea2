"""Processes on one storage: each notices what another has written, or is told of it."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

from legacy_queue.adapters.embedded import EmbeddedAccount, StorageFile
from legacy_queue.domain.ids import slugid
from tests.services.harness import ALICE, PREFIX, PROVISIONER, SECOND, WORKER_TYPE, Harness, task_body
from tests.system.processes import wait_until


def test_a_poll_that_waits_gets_the_work_of_another_process_at_its_next_look(
    tmp_path: Path, harness: Harness
) -> None:
    """The clock stands still, so that no poll is due by itself."""
    file = StorageFile(tmp_path)
    file.prepare()
    accounts = [EmbeddedAccount(file, harness.clock, "http://127.0.0.1:1", PREFIX) for _ in range(2)]
    here, there = (harness.replica(account=account, claim_work_wait=60 * SECOND) for account in accounts)
    there.pollers.watch()  # nobody waits
    here.background()  # has a thread for that
    task_id = slugid()
    with ThreadPoolExecutor(1) as threads:
        is_left = lambda: not accounts  # noqa: E731
        waiting = threads.submit(here.claim_work.claim, PROVISIONER, WORKER_TYPE, ALICE, 1, is_left)
        wait_until(here.pollers.waiting)

        def stays() -> bool:
            """Whether two looks saw one version: the file's own upkeep may have written in between."""
            version = accounts[0].version
            assert version
            before = version()
            for _ in range(2):
                harness.clock.advance(SECOND)
                here.pollers.watch()
            return version() == before

        wait_until(stays)
        there.tasks.create(task_id, task_body(harness.clock.now()))
        here.pollers.watch()  # too soon
        harness.clock.advance(timedelta(milliseconds=2))
        here.pollers.watch()
        (claim,) = waiting.result()["tasks"]
    assert claim["status"]["taskId"] == task_id
    for account in accounts:
        account.close()


def test_a_poll_that_waits_gets_the_last_work_of_a_process_that_tells_and_ends(harness: Harness) -> None:
    here, there = (harness.replica(claim_work_wait=60 * SECOND, tells_offers_as=slugid) for _ in range(2))
    task_id = slugid()
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(here.claim_work.claim, PROVISIONER, WORKER_TYPE, ALICE, 1, lambda: False)
        wait_until(here.pollers.waiting)
        for server in (there, here):
            server.pollers.watch()
        there.tasks.create(task_id, task_body())
        there.background().stop()
        here.pollers.watch()
        (claim,) = waiting.result()["tasks"]
    assert claim["status"]["taskId"] == task_id
