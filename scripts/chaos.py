"""Kills servers under load, whose storage is frozen and stopped meanwhile; run by scripts/chaos.

Schedulers create tasks, workers of the three protocols run them, and every answer is recorded. Within a
minute after the load each task must be resolved, each answer must stand, no two workers may have held the
same run, and each event must have reached a consumer. What comes later is "late", what has not come when the
script gives up is "lost"; either makes the exit code 1, and so does what contradicts an answer.
"""

import argparse
import json
import os
import random
import secrets
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from legacy_queue.local_processes.azurite import Azurite
from tests.chaos import summary
from tests.chaos.checks import Contradiction, Promise, contradictions, promises, resolved_at
from tests.chaos.clients import ROOT, Caller, LoadContext, Scheduler
from tests.chaos.consumer import Consumer
from tests.chaos.record import Json, Record
from tests.chaos.servers import Server, Storage, perform
from tests.chaos.timetable import Wanted, timetable
from tests.chaos.workers import PROTOCOLS, ChaosWorker
from tests.rabbitmq import RabbitMQ

_HERE = Path(__file__).parents[1]
_CLAIM_TIMEOUT = 10.0  # seconds
_OPTIONS = ("--claim-timeout", f"{_CLAIM_TIMEOUT:.0f}s", "--poll-visibility", "5s", "--claim-work-wait", "5s")
_READY_WITHIN = 120.0  # seconds
_LOOK_AGAIN = 1.0  # seconds
_SCHEDULERS = 6
_SHOWN = 50  # lines of each kind of what is wrong


@dataclass(frozen=True)
class Scene:
    """What was started, and when."""

    context: LoadContext
    storage: Storage
    start: float

    def say(self, what: str) -> None:
        """A line with the seconds since the start."""
        print(f"{time.time() - self.start:7.1f} s  {what}", flush=True)


@dataclass(frozen=True)
class Outcome:
    """What was found when all was well, or when the script gave up; ``ended``: when the load did."""

    statuses: Mapping[str, Json]
    promises: list[Promise]
    contradictions: list[Contradiction]
    ended: float


@contextmanager
def scene(options: argparse.Namespace, folder: Path) -> Iterator[Scene]:
    """Storage, broker, consumer and servers, which are ready; all of them have ended afterwards."""
    record, is_over = Record(), threading.Event()
    with ExitStack() as stack:
        azurite = stack.enter_context(Azurite(folder / "azurite"))
        storage = Storage(azurite)
        stack.callback(storage.thaw)
        url = options.amqp_url or stack.enter_context(RabbitMQ(folder / "rabbitmq", _HERE / ".rabbitmq")).url
        name = f"c{secrets.token_hex(4)}"
        consumer = Consumer(url, name, record)
        consumer.start()
        stack.callback(consumer.stop)
        environment = _environment(azurite, url, name)
        servers = [
            Server(number, folder, environment, record, *_OPTIONS) for number in range(options.servers)
        ]
        for server in servers:
            server.start()
            stack.callback(server.stop)
        deadline = time.monotonic() + _READY_WITHIN
        while not all(server.root_url for server in servers):
            if time.monotonic() > deadline:
                raise TimeoutError(f"the servers are not ready; see {folder}")
            time.sleep(0.05)
        lasts = options.seconds + options.recovery_timeout + 600
        context = LoadContext(record, servers, is_over, _CLAIM_TIMEOUT, lasts)
        stack.callback(is_over.set)
        yield Scene(context, storage, time.time())


def _environment(azurite: Azurite, amqp_url: str, name: str) -> dict[str, str]:
    own = {key: value for key, value in os.environ.items() if not key.startswith("LEGACY_QUEUE_")}
    settings = {
        "STORAGE": "azure",
        "CONNECTION_STRING": azurite.connection_string,
        "QUEUE_PREFIX": name,
        "PROJECT": name,
        "SIGNING_SECRETS": secrets.token_hex(16),
        "CLIENTS": json.dumps({ROOT["clientId"]: {"accessToken": ROOT["accessToken"], "scopes": ["*"]}}),
        "AMQP_URL": amqp_url,
    }
    return {**own, **{f"LEGACY_QUEUE_{key}": value for key, value in settings.items()}}


def load(scene: Scene, options: argparse.Namespace) -> None:
    """Have tasks created and run while the acts of the timetable are performed; over when this returns."""
    context, seed = scene.context, options.seed
    threads = [
        threading.Thread(
            target=ChaosWorker(context, f"{seed} {protocol} {number}", protocol, f"{protocol}-{number}").run,
            daemon=True,
        )
        for protocol in PROTOCOLS
        for number in range(options.workers_each)
    ]
    schedulers = [
        threading.Thread(
            target=Scheduler(context, f"{seed} scheduler {number}").run,
            args=(options.rate / _SCHEDULERS, options.seconds),
            daemon=True,
        )
        for number in range(_SCHEDULERS)
    ]
    for thread in threads + schedulers:
        thread.start()
    wanted = Wanted(
        options.seconds,
        options.servers,
        options.kills,
        options.freezes,
        options.stops,
        options.longest_freeze,
    )
    for act in timetable(wanted, random.Random(seed)):
        time.sleep(max(0.0, scene.start + act.at - time.time()))
        perform(act, context.servers, scene.storage, context.record)
        scene.say(f"storage: {act.what}" if act.is_of_storage else f"server {act.server}: {act.what} killed")
    for scheduler in schedulers:
        scheduler.join(max(0.0, scene.start + options.seconds + options.recovery_timeout - time.time()))
    context.record.is_ending = True


def watch(scene: Scene, options: argparse.Namespace) -> Outcome:
    """Look until every promise is kept, or the recovery timeout is over."""
    ended, record = time.time(), scene.context.record
    scene.say(f"the load is over: {len(record.groups)} tasks")
    caller = Caller(LoadContext(record, scene.context.servers, threading.Event(), _CLAIM_TIMEOUT, 0), "watch")
    statuses: dict[str, Json] = {}
    while True:
        _look(
            caller,
            [task_id for task_id in record.groups if not _is_resolved(statuses.get(task_id))],
            statuses,
        )
        found = list(promises(record, statuses, ended))
        missing = sum(promise.kept is None for promise in found)
        if not missing or time.time() > ended + options.recovery_timeout:
            break
        time.sleep(_LOOK_AGAIN)
    scene.say(f"{missing} of {len(found)} things are missing")
    _look(caller, list(record.groups), statuses)  # what was resolved has to stay as it was
    found = list(promises(record, statuses, ended))
    return Outcome(statuses, found, list(contradictions(record, statuses)), ended)


def _look(caller: Caller, task_ids: list[str], statuses: dict[str, Json]) -> None:
    for task_id in task_ids:
        answer = caller.call("status", f"/task/{task_id}/status", method="GET", tries=100)
        if answer and answer[0] == 200:
            statuses[task_id] = answer[1]["status"]
        else:
            statuses.pop(task_id, None)


def _is_resolved(status: Json | None) -> bool:
    return status is not None and resolved_at(status) is not None


def report(scene: Scene, outcome: Outcome, within: float, folder: Path) -> bool:
    """Print figures and everything that is wrong; returns whether nothing is wrong."""
    record, start = scene.context.record, scene.start
    limit = outcome.ended + within
    late = [promise for promise in outcome.promises if promise.kept is not None and promise.kept > limit]
    lost = [promise for promise in outcome.promises if promise.kept is None]
    kept = [promise.kept for promise in outcome.promises if promise.kept is not None]
    print("\nanswers:", *summary.answers(record), sep="\n")
    print(*summary.ends(outcome.statuses), sep="\n")
    print(f"acknowledged: {len(record.claims)} claims, {len(record.resolutions)} resolutions; ", end="")
    print(f"{len(record.events)} events arrived, {len(record.groups)} tasks in {_groups(record)} groups")
    print("recovery after kills:", *summary.recovery(record), sep="\n")
    print("events after what they are about:", *summary.event_delays(outcome.promises), sep="\n")
    print("waiting:", *summary.waits(outcome.statuses), sep="\n")
    print("warnings in the logs:", *summary.logs(folder), sep="\n")
    if kept:
        print(f"the last of what had to be was so {max(kept) - outcome.ended:.1f} s after the load ended")
    for name, found in (("late", late), ("lost", lost)):
        print(f"\n{name}: {len(found)}")
        for promise in sorted(found, key=lambda promise: promise.due)[:_SHOWN]:
            came = "never" if promise.kept is None else f"{promise.kept - start:.1f} s"
            print(f"  {promise.about} {promise.what}: since {promise.due - start:.1f} s, {came}")
    print(f"\ncontradictions: {len(outcome.contradictions)}")
    print(*(f"  {promise.about} {promise.what}" for promise in outcome.contradictions[:_SHOWN]), sep="\n")
    wrong = [promise.about for found in (outcome.contradictions, lost, late) for promise in found]
    print(*summary.histories(wrong, record, outcome.statuses, start), sep="\n")
    return not wrong


def _groups(record: Record) -> int:
    return len(set(record.groups.values()))


def main() -> int:
    """The exit code: 0 when nothing is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", default=secrets.token_hex(4), help="the same plans, kills and times again")
    parser.add_argument("--seconds", type=float, default=240, help="that the load lasts")
    parser.add_argument("--rate", type=float, default=5, help="tasks that are created each second")
    parser.add_argument("--kills", type=int, default=20, help="of worker process, supervisor or both")
    parser.add_argument("--freezes", type=int, default=2, help="of storage (SIGSTOP, SIGCONT)")
    parser.add_argument("--longest-freeze", type=float, default=25, help="seconds")
    parser.add_argument("--stops", type=int, default=2, help="of storage (SIGTERM, and a new start)")
    parser.add_argument("--servers", type=int, default=2, help="on the same storage")
    parser.add_argument("--workers-each", type=int, default=3, help="of each protocol")
    parser.add_argument("--within", type=float, default=60, help="seconds after the load: later is late")
    parser.add_argument(
        "--recovery-timeout",
        "--patience",
        type=float,
        default=240,
        help="seconds after the load: later is lost",
    )
    parser.add_argument("--amqp-url", help="a broker; without it the script starts a broker")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="chaos-"))
    with scene(options, folder) as running:
        load(running, options)
        outcome = watch(running, options)
        running.context.is_over.set()
    is_well = report(running, outcome, options.within, folder)
    if is_well:
        shutil.rmtree(folder)
    print("all is well" if is_well else f"the logs are in {folder}")
    return 0 if is_well else 1


if __name__ == "__main__":
    sys.exit(main())
