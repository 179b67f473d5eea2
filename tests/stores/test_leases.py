"""Two processes acquire a lease at once."""

from datetime import UTC, datetime, timedelta

from legacy_queue.ports.table import Row
from legacy_queue.stores import JobLease, LeaseStore
from tests.memory_server import FakeClock, MemoryTable

NOW = datetime(2018, 3, 4, 5, 6, 7, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


class OvertakenTable(MemoryTable):
    """After its first read another process acquires the lease."""

    overtaker: LeaseStore | None = None
    until = NOW

    def get(self, partition: str, key: str) -> Row | None:
        row, overtaker, self.overtaker = super().get(partition, key), self.overtaker, None
        if overtaker:
            assert isinstance(overtaker.acquire(partition, self.until), JobLease)
        return row


def test_of_two_processes_that_acquire_a_lease_the_second_gets_the_time_when_it_ends() -> None:
    table, clock = OvertakenTable(), FakeClock(NOW)
    leases = LeaseStore(table, clock)
    for until in (NOW + MINUTE, NOW + 2 * MINUTE):  # the row is new, then its lease is over
        table.overtaker, table.until = leases, until
        assert leases.acquire("sweeping", NOW + 3 * MINUTE) == until
        clock.advance(MINUTE)
