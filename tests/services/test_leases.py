"""Leases are short, and renewed while work goes on."""

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.ports import Changed
from legacy_queue.services.periodic_jobs import LEASE, RenewedLease
from legacy_queue.stores import JobLease, LeaseStore
from tests.memory_server import FakeClock, memory_storage
from tests.services.harness import NOW, SECOND, FaultAt, failing
from tests.services.ports import Intercept, intercept_port

OFTEN = timedelta(milliseconds=1)
MAX_WAIT = 30  # seconds, after which a test that waits fails
AWAY = ServiceUnavailable("storage is away")


class CallObserver:
    """Intercepts calls: ``happened`` is set after a call of that name."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.happened = threading.Event()

    def __call__(self, name: str, call: Callable[[], Any]) -> Any:
        answer = call()
        if name == self._name:
            self.happened.set()
        return answer


class Held:
    """A lease of one process. ``other`` acquires it for another process, if it can."""

    def __init__(self, intercept: Intercept | None = None, every: timedelta = timedelta(hours=1)) -> None:
        self.clock = FakeClock(NOW)
        self._leases = memory_storage(self.clock, "http://127.0.0.1:1/azure", "q").leases
        lease = self._leases.acquire("sweep", self.clock.now() + LEASE)
        assert isinstance(lease, JobLease)
        leases = intercept_port(LeaseStore, self._leases, intercept) if intercept else self._leases
        self.renewed = RenewedLease(leases, lease, self.clock, every)

    def other(self) -> JobLease | None:
        taken = self._leases.acquire("sweep", self.clock.now() + LEASE)
        return taken if isinstance(taken, JobLease) else None


def test_a_lease_is_renewed_while_its_holder_works() -> None:
    observer = CallObserver("renew")
    held = Held(observer, OFTEN)
    with held.renewed:
        held.clock.advance(LEASE - SECOND)
        for _ in range(2):  # the first may have read the clock before
            observer.happened.clear()
            assert observer.happened.wait(MAX_WAIT)
        held.clock.advance(LEASE - SECOND)
        assert held.other() is None


def test_the_lease_of_a_dead_process_can_be_acquired_when_it_ends() -> None:
    held = Held()
    held.clock.advance(LEASE - SECOND)
    assert held.other() is None
    held.clock.advance(SECOND)
    assert held.other()


def test_the_next_holder_gets_the_position_of_a_released_lease() -> None:
    held = Held()
    with held.renewed as lease:
        lease.renew("so far", None)
        lease.release(held.clock.now(), "further", NOW)
    taken = held.other()
    assert taken
    assert (taken.cursor, taken.since) == ("further", NOW)


def test_a_released_lease_is_not_renewed() -> None:
    observer = CallObserver("renew")
    held = Held(observer, OFTEN)
    with held.renewed as lease:
        lease.release(held.clock.now() + timedelta(hours=1), "", None)
        observer.happened.clear()
        assert not observer.happened.wait(0.05)
    held.clock.advance(timedelta(hours=1) - SECOND)
    assert held.other() is None


def test_renewing_a_lease_that_another_process_acquired_fails() -> None:
    held = Held()
    held.clock.advance(LEASE)
    assert held.other()
    with pytest.raises(Changed):
        held.renewed.renew("so far", None)


@pytest.mark.parametrize("error", [AWAY, Changed()], ids=repr)
def test_a_failed_renewal_is_repeated(error: Exception) -> None:
    observer = CallObserver("renew")
    fault = FaultAt(0, of="renew", before=failing(error))
    held = Held(lambda name, call: observer(name, lambda: fault(name, call)), OFTEN)
    with held.renewed:
        assert observer.happened.wait(MAX_WAIT)
    assert fault.happened


def test_the_renewals_end_with_the_context() -> None:
    observer = CallObserver("renew")
    before = threading.active_count()
    with Held(observer, OFTEN).renewed:
        assert observer.happened.wait(MAX_WAIT)
    assert threading.active_count() == before
