"""Judges whether a worker follows the protocol, by nothing but the requests that it sends.

``conform`` creates ``situations``. For each of them it starts the worker's command on an ``observed_queue``.
The ``rules`` read the ``log`` of the worker's requests, and a ``report`` shows what they found. ``observe``
judges the last requests of a running server instead.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from time import monotonic
from typing import Any

from legacy_queue.conform.log import Log, judged, logs_by_worker, spoken_protocol
from legacy_queue.conform.observed_queue import (
    CLAIM,
    FORMS,
    LONG_CLAIM,
    ObservedQueue,
    Payloads,
    WorkerEnded,
)
from legacy_queue.conform.report import Report, judge, written
from legacy_queue.conform.rules import POLLS, PROTOCOLS, RULES, Rule
from legacy_queue.conform.situations import SITUATIONS, Situation
from legacy_queue.testing.server_process import ServerFailed

__all__ = ["FORMS", "PROTOCOLS", "Report", "ServerFailed", "conform", "observe", "written"]

_MAX_CONCURRENT = 8  # situations
_FIRST = SITUATIONS[0]  # this situation shows which protocol the worker speaks


def conform(
    command: Sequence[str],
    protocol: str | None = None,
    payloads: Payloads = FORMS["sample"],
    rules: Sequence[str] = (),
    progress: Callable[[int, int, str], object] = lambda *_: None,
    claim: timedelta | None = None,
) -> Report:
    """Start the worker with ``command``, and judge it.

    - In the command, ``{rootUrl}``, ``{baseUrl}``, ``{provisionerId}``, ``{workerType}``, ``{workerGroup}``
      and ``{workerId}`` are replaced. The worker's environment has the same values, and credentials.
    - ``protocol`` is the protocol that the worker should speak. By default, it may speak any.
    - ``payloads`` has the task.payload for each kind of task: ``completes``, ``fails``, ``runs`` (for
      ``{seconds}``) and ``malformed``.
    - ``rules`` has rule ids. If it has any, only the situations that show these rules are created.
    - ``progress`` is called with how many situations have ended, how many there are, and the last one's name.
    - ``claim`` is how long a claim lasts. By default it is 12 seconds, or 3m40s with the payloads of
      generic-worker, which never reclaims a shorter claim. The whole run takes about twice this time, plus 30
      seconds.

    Raises ValueError if the command cannot be started, if the worker sends no request or does not speak
    ``protocol``, and for an unknown rule or protocol.
    """
    if unknown := {*rules} - {rule.id for rule in RULES}:
        raise ValueError(
            f"there is no rule {min(unknown)!r}: expected one of {', '.join(r.id for r in RULES)}"
        )
    if protocol not in (None, *PROTOCOLS):
        raise ValueError(f"there is no protocol {protocol!r}: expected one of {', '.join(PROTOCOLS)}")
    if protocol:
        _rules_of(protocol, rules)
    begun = monotonic()
    claim = claim or (LONG_CLAIM if payloads is FORMS["generic-worker"] else CLAIM)
    logs: list[Log] = []
    histories: dict[str, Any] = {}
    troubles: list[str] = []

    def cause(situation: Situation, total: int = 0) -> None:
        trouble = ""
        with ObservedQueue(situation.name, command, payloads, situation.settings, claim) as queue:
            try:
                situation.show(queue)
            except WorkerEnded as ended:
                trouble = f"the worker ended by itself: {ended}"
            except KeyError as missing:
                trouble = f"you gave no payload {missing.args[0]!r} for its task"
            log = queue.log()
            histories.update(queue.histories())
        logs.append(log)
        troubles.extend([f"Situation {situation.name}: {trouble}"] if trouble else [])
        if total:
            progress(len(logs), total, f"situations: {situation.name}")

    def found() -> str:
        requests = [request for log in logs for request in log.requests]
        if not requests:
            raise ValueError(troubles[0] if troubles else "the worker sent no request")
        return spoken_protocol(requests)

    chosen = [each for each in SITUATIONS if not rules or each.shows & {*rules}]
    first, *others = chosen if protocol and chosen[0] is not _FIRST else SITUATIONS
    cause(first)
    spoken = protocol or found()
    if (found() in POLLS) != (spoken in POLLS):
        raise ValueError(f"the worker speaks the protocol {found()}, not {spoken}")
    asked = _rules_of(spoken, rules)
    left = [each for each in others if each in chosen and spoken in each.protocols]
    progress(1, 1 + len(left), f"situations: {first.name}")
    with ThreadPoolExecutor(_MAX_CONCURRENT) as threads:
        [*threads.map(lambda each: cause(each, 1 + len(left)), left)]
    return replace(judge(spoken, logs, asked, monotonic() - begun, rules, troubles), histories=histories)


def _rules_of(protocol: str, chosen: Sequence[str]) -> list[Rule]:
    """The rules of the protocol. Raises ValueError if a chosen rule is not among them."""
    asked = [rule for rule in RULES if protocol in rule.protocols]
    for rule in (each for each in RULES if each.id in chosen and each not in asked):
        raise ValueError(
            f"the protocol of this worker, {protocol}, has no rule {rule.id!r}: it is a rule of the protocol "
            + " and ".join(rule.protocols)
        )
    return asked


def observe(journal: Sequence[Mapping[str, Any]], pool: str | None = None) -> list[Report]:
    """Judge the workers of a pool by the requests that a server has received so far.

    Each worker is judged by the rules of the protocol that it speaks. The server's clock must not have been
    moved. Raises ValueError if no worker of the pool has claimed a task, or if workers of several pools have
    sent requests and ``pool`` names none of these.
    """
    requests = judged(journal)
    pools = {str(request.wire["taskQueueId"]) for request in requests if "taskQueueId" in request.wire}
    if len(pools) != 1 and pool not in pools:
        if not pools:
            raise ValueError("the queue has received no request from a worker")
        seen = f"no request for {pool}" if pool else "requests for several pools"
        raise ValueError(f"the queue has received {seen}: name one of {', '.join(sorted(pools))}")
    chosen = pool or min(pools)
    logs = logs_by_worker(requests, chosen, is_whole=journal[0]["sequence"] == 1)
    if not logs:
        raise ValueError(f"no worker of {chosen} has claimed a task")
    return [
        replace(judge(protocol, [log], _rules_of(protocol, ())), worker=f"{log.worker} of {chosen}")
        for log in logs
        for protocol in [spoken_protocol(log.requests)]
    ]
