"""The simulation counts what a server really sends to Azure."""

import json
import secrets
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from typing import cast

import pytest

from legacy_queue.adapters.azure import AzureAccount
from legacy_queue.adapters.clock import SystemWaiter
from legacy_queue.domain.ids import slugid
from legacy_queue.local_processes.azurite import Azurite
from legacy_queue.ports.account import StorageAccount
from legacy_queue.services.composition import Services
from legacy_queue.stores import Storage
from tests.docs.terminal import ROOT
from tests.memory_server import FakeClock
from tests.services.harness import NOW, SECOND
from tests.services.test_budget import Metered
from tests.simulation.counted import TASKS, Workload
from tests.simulation.world import SETTINGS

pytestmark = pytest.mark.processes

REQUESTS = {
    "get": ("table", "GET"),
    "page": ("table", "GET"),
    "insert": ("table", "POST"),
    "merge": ("table", "PATCH"),
    "leases.put": ("table", "PUT"),
    "work.put": ("queue", "POST"),
    "timers.put": ("table", "PUT"),
    "timers.delete": ("table", "DELETE"),
    "receive": ("queue", "GET"),
    "update": ("queue", "PUT"),
    "delete": ("queue", "DELETE"),
}


def simulated() -> Counter[str]:
    """The calls in a world, by what they do."""
    command = [sys.executable, "-m", "gevent.monkey", "--module", "tests.simulation.counted"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return Counter(json.loads(done.stdout))


def test_a_world_counts_the_requests_that_azurite_gets(azurite: Azurite) -> None:
    clock = FakeClock(NOW)
    prefix = f"t{secrets.token_hex(4)}"
    account = AzureAccount(azurite.connection_string, prefix)
    metered = Metered(account, prefix=prefix)
    storage = Storage(cast(StorageAccount, metered), prefix, clock)
    account.check()
    services = Services(storage, None, clock, SystemWaiter(), replace(SETTINGS, tells_offers_as=lambda: "p0"))
    workload = Workload(services, account, prefix, slugid, lambda seconds: clock.advance(seconds * SECOND))
    workload.run(2)
    metered.take()
    account.operations.clear()
    workload.run(TASKS)
    sent = Counter(metered.take())
    assert sent == simulated()
    sent["polls.receive"] = TASKS // 2  # of the worker of each other task, over the same account
    requests: Counter[tuple[str, str]] = Counter()
    for kind, count in sent.items():
        requests[REQUESTS.get(kind) or REQUESTS[kind.partition(".")[2]]] += count
    assert requests == account.operations
