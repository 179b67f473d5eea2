"""Declarations of provisioners, pools and workers: their scopes and their schemas."""

from datetime import timedelta
from typing import Any

import pytest

from legacy_queue.domain.times import format_time
from tests.http.calls import (
    NOW,
    OF_2018,
    TESTED,
    TODAY,
    Queue,
    example_call,
    holding,
    params_of,
    refused,
    succeeded,
)

HOUR = timedelta(hours=1)
DECLARING = ["declareProvisioner", "declareWorkerType", "declareWorker"]


def action(**changes: Any) -> dict[str, Any]:
    url = "https://example.com/<provisionerId>/<workerType>/<workerGroup>/<workerId>"
    words = dict.fromkeys(("name", "title", "description"), "reboot")
    return {**words, "context": "worker", "url": url, "method": "POST", **changes}


def provisioners(queue: Queue) -> list[str]:
    return [each["provisionerId"] for each in queue.ask("listProvisioners")["provisioners"]]


@pytest.mark.parametrize("name", DECLARING)
def test_a_declaration_without_properties_needs_any_one_declare_scope_and_changes_only_times(
    name: str,
) -> None:
    kind = {"declareProvisioner": "provisioner", "declareWorkerType": "worker-type"}.get(name, "worker")
    params = params_of(name)
    queue = holding(f"queue:declare-{kind}:{'/'.join(params.values())}#expires")
    prefix = OF_2018 if "Provisioner" in name else TODAY
    before = queue.ask(name, example_call(name).body, prefix=prefix, **params)
    queue.clock.advance(7 * HOUR)
    succeeded(queue.call(name, {}, TESTED, **params))
    after = queue.ask(name.replace("declare", "get"), prefix=prefix, **params)
    assert after == {**before, "lastDateActive": format_time(NOW + 7 * HOUR), "expires": after["expires"]}
    assert after["expires"] >= before["expires"]


def test_a_declaration_without_a_declare_scope_is_refused_and_creates_no_record() -> None:
    queue = holding("queue:declare-provisioner:other#*")
    for name in DECLARING:
        refused(queue.call(name, {}, TESTED, **params_of(name)), 403, "InsufficientScopes", "queue:declare-")
    assert provisioners(queue) == []


WRONG: list[dict[str, Any]] = [
    {"colour": "red"},
    {"description": "x" * 16_385},
    {"stability": "broken"},
    {"actions": [action(name=str(number)) for number in range(33)]},
    {"actions": [action(), action()]},
    {"actions": [action(context="task")]},
    {"actions": [action(method="GET")]},
    {"actions": [action(url="https://example.com/a b")]},
]


def test_an_invalid_declaration_is_refused_and_creates_no_record(queue: Queue) -> None:
    for name, bodies in (("declareProvisioner", WRONG), *((name, WRONG[:1]) for name in DECLARING[1:])):
        for body in bodies:
            answer = queue.call(name, body, **params_of(name))
            refused(answer, 400, "InputValidationError", "body", "schemas")
    assert provisioners(queue) == []
