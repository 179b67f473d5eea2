"""Does a worker follow the protocol? It is brought into situations, and judged by its requests alone.

``conform`` starts the worker's command for each of the ``situations``, on an ``observed_queue`` of its
own. The ``rules`` read the ``log`` of its requests, and a ``report`` shows what they have found. ``observe``
judges the last requests of a running server.
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
_FIRST = SITUATIONS[0]  # it shows which protocol the worker speaks


def conform(
    command: Sequence[str],
    protocol: str | None = None,
    payloads: Payloads = FORMS["sample"],
    rules: Sequence[str] = (),
    progress: Callable[[int, int, str], object] = lambda *_: None,
    claim: timedelta | None = None,
) -> Report:
    """Judge the worker that ``command`` starts.

    ``{rootUrl}``, ``{baseUrl}``, ``{provisionerId}``, ``{workerType}``, ``{workerGroup}`` and ``{workerId}``
    in the command are replaced; its environment has them too, and credentials. ``protocol`` is what the
    worker should speak; by default what it speaks. ``payloads`` has task.payload by what such a task does:
    ``completes``, ``fails``, ``runs`` for ``{seconds}``, ``malformed``. ``rules`` are ids: only their
    situations are caused. ``progress`` is called with how many situations have ended, of how many, and which.
    A claim lasts for ``claim``: 12 seconds, or 3m40s with the payloads of generic-worker, which reclaims no
    shorter one; all takes twice as long, and half a minute. Raises ValueError for a command that cannot be
    started, a worker that speaks another protocol, and an unknown rule or protocol.
    """
    unknown = [*({*rules} - {rule.id for rule in RULES}), *({protocol} - {None, *PROTOCOLS})]
    if unknown:
        known = ", ".join([*PROTOCOLS, *(rule.id for rule in RULES)])
        raise ValueError(f"there is no protocol or rule {unknown[0]!r}: {known} are known")
    if protocol:
        _asked(protocol, rules)
    begun = monotonic()
    claim = claim or (LONG_CLAIM if payloads is FORMS["generic-worker"] else CLAIM)
    logs: list[Log] = []
    lives: dict[str, Any] = {}
    troubles: list[str] = []

    def cause(situation: Situation, total: int = 0) -> None:
        trouble = ""
        with ObservedQueue(situation.name, command, payloads, situation.settings, claim) as queue:
            try:
                situation.show(queue)
            except WorkerEnded as ended:
                trouble = f"the worker has ended: {ended}"
            except KeyError as missing:
                trouble = f"there is no payload of a task that {missing.args[0]}"
            log = queue.log()
            lives.update(queue.lives())
        logs.append(log)
        troubles.extend([f"{situation.name}: {trouble}"] if trouble else [])
        if total:
            progress(len(logs), total, f"situations: {situation.name}")

    def found() -> str:
        requests = [request for log in logs for request in log.requests]
        if not requests:
            raise ValueError(troubles[0] if troubles else "no request of a worker has arrived")
        return spoken_protocol(requests)

    chosen = [each for each in SITUATIONS if not rules or each.shows & {*rules}]
    first, *others = chosen if protocol and chosen[0] is not _FIRST else SITUATIONS
    cause(first)
    spoken = protocol or found()
    if (found() in POLLS) != (spoken in POLLS):
        raise ValueError(f"the worker speaks {found()}, not {spoken}")
    asked = _asked(spoken, rules)
    left = [each for each in others if each in chosen and spoken in each.protocols]
    progress(1, 1 + len(left), f"situations: {first.name}")
    with ThreadPoolExecutor(_MAX_CONCURRENT) as threads:
        [*threads.map(lambda each: cause(each, 1 + len(left)), left)]
    return replace(judge(spoken, logs, asked, monotonic() - begun, rules, troubles), lives=lives)


def _asked(protocol: str, chosen: Sequence[str]) -> list[Rule]:
    """The rules of the protocol; raises ValueError if one that is chosen is not among them."""
    asked = [rule for rule in RULES if protocol in rule.protocols]
    if others := {*chosen} - {rule.id for rule in asked}:
        raise ValueError(f"{min(others)!r} is no rule of the protocol {protocol}, which the worker speaks")
    return asked


def observe(journal: Sequence[Mapping[str, Any]], pool: str | None = None) -> list[Report]:
    """Judge what a server, whose clock was not moved, has seen so far of the workers of a pool, each under
    the protocol that it speaks.

    Raises ValueError if no worker was seen, or those of several pools, of which none is chosen.
    """
    requests = judged(journal)
    pools = {str(request.wire["taskQueueId"]) for request in requests if "taskQueueId" in request.wire}
    if len(pools) != 1 and pool not in pools:
        raise ValueError(
            f"choose a pool of which workers were seen: {', '.join(sorted(pools)) or 'there is none'}"
        )
    chosen = pool or min(pools)
    logs = logs_by_worker(requests, chosen, is_whole=journal[0]["sequence"] == 1)
    if not logs:
        raise ValueError(f"no worker of {chosen} was seen to claim")
    return [
        replace(judge(protocol, [log], _asked(protocol, ())), worker=f"{log.worker} of {chosen}")
        for log in logs
        for protocol in [spoken_protocol(log.requests)]
    ]
