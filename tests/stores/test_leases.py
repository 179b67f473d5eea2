from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from legacy_queue.ports import Changed
from legacy_queue.stores import JobLease, Storage

from .conftest import Backend

MINUTE = timedelta(minutes=1)


def taken(storage: Storage, backend: Backend, name: str = "sweeping") -> JobLease:
    lease = storage.leases.acquire(name, backend.clock.now() + MINUTE)
    assert isinstance(lease, JobLease)
    return lease


def test_a_new_lease_has_no_cursor_and_no_time(storage: Storage, backend: Backend) -> None:
    lease = taken(storage, backend)
    assert (lease.name, lease.cursor, lease.since) == ("sweeping", "", None)


def test_a_lease_is_refused_until_its_time_is_over(
    storage: Storage, other: Storage, backend: Backend
) -> None:
    until = backend.clock.now() + MINUTE
    storage.leases.acquire("sweeping", until)
    for store in (storage, other):
        assert store.leases.acquire("sweeping", until + MINUTE) == until
    backend.clock.advance(MINUTE)
    assert isinstance(other.leases.acquire("sweeping", until + MINUTE), JobLease)


def test_leases_of_different_names_are_independent(storage: Storage, backend: Backend) -> None:
    assert {taken(storage, backend, name).name for name in ("sweeping", "expiry")} == {"sweeping", "expiry"}


@pytest.mark.parametrize("is_new", [True, False])
def test_one_of_several_processes_gets_the_lease(
    storage: Storage, other: Storage, backend: Backend, is_new: bool
) -> None:
    if not is_new:
        taken(storage, backend)
        backend.clock.advance(MINUTE)
    until = backend.clock.now() + MINUTE

    def acquire(number: int) -> JobLease | object:
        return (storage, other)[number % 2].leases.acquire("sweeping", until)

    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(acquire, range(8)))
    assert sorted(isinstance(answer, JobLease) for answer in answers) == [False] * 7 + [True]
    assert [answer for answer in answers if not isinstance(answer, JobLease)] == [until] * 7


def test_a_renewed_lease_lasts_longer(storage: Storage, other: Storage, backend: Backend) -> None:
    until = backend.clock.now() + 3 * MINUTE
    lease = taken(storage, backend)
    for _ in range(2):
        lease = storage.leases.renew(lease, until, "", None)
    backend.clock.advance(MINUTE)
    assert other.leases.acquire("sweeping", until) == until


def test_a_released_lease_passes_its_cursor_to_the_next_holder(
    storage: Storage, other: Storage, backend: Backend
) -> None:
    since = backend.clock.now()
    lease = taken(storage, backend)
    kept = storage.leases.renew(lease, since, '{"after": "é"}', since)
    assert (kept.name, kept.cursor, kept.since) == ("sweeping", '{"after": "é"}', since)
    following = taken(other, backend)
    assert (following.cursor, following.since) == ('{"after": "é"}', since)
    other.leases.renew(following, since, "", None)
    last = taken(storage, backend)
    assert (last.cursor, last.since) == ("", None)


def test_a_lease_that_another_process_took_cannot_be_renewed(
    storage: Storage, other: Storage, backend: Backend
) -> None:
    lost = taken(storage, backend)
    backend.clock.advance(MINUTE)
    mine = taken(other, backend)
    with pytest.raises(Changed):
        storage.leases.renew(lost, backend.clock.now() + MINUTE, "lost", None)
    assert other.leases.renew(mine, backend.clock.now(), "kept", None).cursor == "kept"
    assert taken(storage, backend).cursor == "kept"


def test_an_expired_lease_that_no_process_took_can_be_renewed(storage: Storage, backend: Backend) -> None:
    lease = taken(storage, backend)
    backend.clock.advance(5 * MINUTE)
    until = backend.clock.now() + MINUTE
    storage.leases.renew(lease, until, "", None)
    assert storage.leases.acquire("sweeping", until) == until


def test_a_version_of_a_lease_is_renewed_only_once(storage: Storage, backend: Backend) -> None:
    lease = taken(storage, backend)
    storage.leases.renew(lease, backend.clock.now() + MINUTE, "first", None)
    with pytest.raises(Changed):
        storage.leases.renew(lease, backend.clock.now() + MINUTE, "second", None)
