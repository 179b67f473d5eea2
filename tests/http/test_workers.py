"""Declarations of provisioners, pools and workers: their scopes and their schemas."""

from datetime import timedelta
from itertools import product
from typing import Any

import pytest

from legacy_queue.domain.authentication import Client
from legacy_queue.domain.times import format_time
from tests.http.calls import (
    NOW,
    OF_2018,
    POOL,
    TODAY,
    WORKER,
    Credentials,
    Queue,
    params_of,
    refused,
    scene,
    succeeded,
)

HOUR = timedelta(hours=1)
ALICE: dict[str, Any] = {**POOL, **WORKER}
DECLARING = ["declareProvisioner", "declareWorkerType", "declareWorker"]


def action(**changes: Any) -> dict[str, Any]:
    words = {
        "name": "reboot",
        "title": "Reboot",
        "context": "worker",
        "url": "https://example.com/<provisionerId>/<workerType>/<workerGroup>/<workerId>",
        "method": "POST",
        "description": "Reboots the machine",
        **changes,
    }
    return {name: value for name, value in words.items() if value is not None}


def ask(queue: Queue, name: str, body: Any = None, **changes: Any) -> Any:
    """The body of the answer; about alice unless ``changes`` name another record."""
    params = {param: {**ALICE, **changes}[param] for param in params_of(name)}
    prefix = OF_2018 if "Provisioner" in name else TODAY
    return succeeded(queue.call(name, body, prefix=prefix, **params)).get_json()


def names(page: Any) -> list[str]:
    (entries,) = (value for value in page.values() if isinstance(value, list))
    return [entry.get("workerId") or entry.get("workerType") or entry["provisionerId"] for entry in entries]


# --- declared


@pytest.mark.parametrize("name", DECLARING)
def test_a_declaration_without_properties_needs_any_declare_scope_and_changes_only_the_times(
    name: str,
) -> None:
    kind = {"declareProvisioner": "provisioner", "declareWorkerType": "worker-type"}.get(name, "worker")
    scope = f"queue:declare-{kind}:{'/'.join(params_of(name).values())}#expires"
    tested = Credentials("tested", "the-access-token-of-the-tested-client")
    queue = Queue(Client(tested.client_id, tested.access_token, (scope,)))
    before = ask(queue, name, scene(name).body)
    queue.clock.advance(7 * HOUR)
    succeeded(queue.call(name, {}, tested, **params_of(name)))
    after = ask(queue, name.replace("declare", "get"))
    assert after == {**before, "lastDateActive": format_time(NOW + 7 * HOUR), "expires": after["expires"]}
    assert after["expires"] >= before["expires"]


@pytest.mark.parametrize("name", DECLARING)
def test_a_declaration_without_a_declare_scope_is_refused_and_makes_no_record(name: str) -> None:
    tested = Credentials("tested", "the-access-token-of-the-tested-client")
    queue = Queue(Client(tested.client_id, tested.access_token, ("queue:declare-provisioner:other#*",)))
    refused(queue.call(name, {}, tested, **params_of(name)), 403, "InsufficientScopes", "queue:declare-")
    assert names(ask(queue, "listProvisioners")) == []


DECLARATIONS = {
    "unknown": {"colour": "red"},
    "long": {"description": "x" * 16_385},
    "stability": {"stability": "broken"},
    "no time": {"expires": "tomorrow"},
    "many": {"actions": [action(name=str(number)) for number in range(33)]},
    "twice": {"actions": [action(), action()]},
    "other context": {"actions": [action(context="task")]},
    "method": {"actions": [action(method="GET")]},
    "url": {"actions": [action(url="https://example.com/a b")]},
}


@pytest.mark.parametrize(
    ("name", "why"),
    [*product(["declareProvisioner"], DECLARATIONS), *product(DECLARING[1:], ["unknown"])],
)
def test_an_invalid_declaration_is_refused_and_makes_no_record(queue: Queue, name: str, why: str) -> None:
    refused(
        queue.call(name, DECLARATIONS[why], **params_of(name)),
        400,
        "InputValidationError",
        "body",
        "schemas",
    )
    assert names(ask(queue, "listProvisioners")) == []
