"""The loop that has timers handled: none lost, none in the way, none too early; idle, it asks little."""

import itertools
import json
import threading
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from legacy_queue.services.watcher import Again, Watcher

from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.domain.ids import slugid
from legacy_queue.domain.messages import Lease
from legacy_queue.domain.timers import Timer
from legacy_queue.ports import Corrupt
from legacy_queue.services.leases import LEASE, LeasedMessage
from legacy_queue.services.timers import Armed
from legacy_queue.stores import OwnQueues
from tests.memory_server import HandClock, memory_storage
from tests.services.bench import MINUTE, NOW, SECOND, At, Calls, HandEvent, failing, one_by_one
from tests.services.ports import Around, around_port

AT_ONCE = timedelta(0)
IDLE = 15 * SECOND
TIMER = Timer("claims", slugid(), NOW)
Handle = Callable[[Timer], Again | None]


class Watched:
    """A queue of timers, and what the watcher's handler was given of them, and when."""

    def __init__(self, handle: Handle = lambda _: None, around: Around | None = None) -> None:
        self.clock = HandClock(NOW)
        self.queues: OwnQueues = memory_storage(self.clock).own_queues
        self.handled: list[tuple[datetime, Timer]] = []
        self._handle = handle
        queues = around_port(OwnQueues, self.queues, around) if around else self.queues
        self.watcher = Watcher("claims", queues, self.handle, self.clock, IDLE)
        self.wake = self.watcher._wake = HandEvent(self.clock)

    def handle(self, timer: Timer, _stop: datetime) -> Again | None:
        self.handled.append((self.clock.now(), timer))
        return self._handle(timer)

    def put(self, delay: timedelta = AT_ONCE, timer: Timer = TIMER) -> Lease:
        return self.queues.put("claims", timer.text(), delay)

    def look(self) -> int:
        return self.watcher.look(one_by_one)

    def run(self, duration: timedelta) -> None:
        self.watcher.run(HandEvent(self.clock, self.clock.now() + duration), one_by_one)

    @property
    def delays(self) -> list[timedelta]:
        return [when - NOW for when, _ in self.handled]

    def left(self, name: str = "claims") -> list[str]:
        """The texts of the messages in the queue, after a very long time."""
        later = HandClock(self.clock.now())
        self.clock.advance(timedelta(days=30))
        texts = [message.text for message in self.queues.peek(name, 32)]
        self.clock.advance(later.now() - self.clock.now())
        return texts


def test_a_timer_that_was_handled_is_removed() -> None:
    watched = Watched()
    watched.put()
    assert watched.look() == 1
    assert watched.handled == [(NOW, TIMER)]
    assert watched.left() == []
    assert watched.look() == 0


def test_a_timer_is_removed_only_after_its_handler_has_returned() -> None:
    calls = Calls()

    def handle(_timer: Timer) -> None:
        assert calls.names == ["receive"]

    watched = Watched(handle, calls)
    watched.put()
    watched.look()
    assert len(watched.handled) == 1
    assert calls.names == ["receive", "remove"]


def test_a_timer_fires_again_as_its_handler_says() -> None:
    again = replace(TIMER, due=NOW + MINUTE, after=slugid())
    watched = Watched(lambda _: Again(again, MINUTE) if watched.clock.now() == NOW else None)
    watched.put()
    watched.look()
    (text,) = watched.left()
    assert replace(Timer.from_text("claims", text), tries=0) == again
    watched.clock.advance(MINUTE - SECOND)
    assert watched.look() == 0
    watched.clock.advance(SECOND)
    assert watched.look() == 1
    assert watched.left() == []


def test_a_handler_that_fails_is_tried_again_later_each_time_and_then_set_aside(
    logs: list[MutableMapping[str, Any]],
) -> None:
    watched = Watched(lambda _: 1 / 0)  # type: ignore[arg-type,return-value]
    watched.put()
    watched.run(timedelta(hours=1))
    assert len(watched.handled) == 10
    waits = [after - before for before, after in itertools.pairwise(watched.delays)]
    assert all(later > earlier - SECOND for earlier, later in itertools.pairwise(waits))
    assert 2 * SECOND <= waits[0] <= 5 * SECOND
    assert MINUTE <= waits[-1] <= 3 * MINUTE
    assert watched.left() == []
    (poison,) = map(json.loads, watched.left("poison"))
    assert poison["queue"] == "claims"
    assert poison["why"] == "its handler failed 10 times"
    assert Timer.from_text("claims", poison["text"]).task_id == TIMER.task_id
    assert [one["log_level"] for one in logs if one["event"] == "message-set-aside"] == ["error"]


def test_failures_are_counted_from_the_last_success_on() -> None:
    turns = iter([*["fail"] * 9, "again", *["fail"] * 9, "again", *["fail"] * 9])

    def handle(timer: Timer) -> Again | None:
        match next(turns, "done"):
            case "fail":
                raise ValueError
            case "again":
                return Again(timer, SECOND)
        return None

    watched = Watched(handle)
    watched.put()
    watched.run(timedelta(hours=2))
    assert len(watched.handled) == 30
    assert watched.left("poison") == watched.left() == []


def test_storage_that_is_away_is_no_failure_of_the_handler() -> None:
    def handle(_timer: Timer) -> None:
        if len(watched.handled) <= 30:
            raise ServiceUnavailable("storage is away")

    watched = Watched(handle)
    watched.put()
    watched.run(timedelta(hours=1))
    assert len(watched.handled) == 31
    assert watched.left("poison") == watched.left() == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense",
        "{}",
        f'{{"taskId": "{TIMER.task_id}", "armed": "now"}}',
        f'{{"taskId": "{TIMER.task_id}", "armed": "{"x" * 40_000}"}}',
        TIMER.text().replace(TIMER.task_id, "a/b"),
        TIMER.text().replace("}", ', "tries": Infinity}'),
        TIMER.text().replace("}", ', "tries": 1e999}'),
    ],
    ids=range(8),
)
def test_what_is_no_timer_is_set_aside_at_once(text: str, logs: list[MutableMapping[str, Any]]) -> None:
    watched = Watched()
    watched.queues.put("claims", text, AT_ONCE)
    watched.put()
    assert watched.look() == 2
    assert watched.handled == [(NOW, TIMER)]
    assert watched.left() == []
    (poison,) = map(json.loads, watched.left("poison"))
    assert (poison["queue"], poison["text"]) == ("claims", text[: 8 * 1024])
    assert 0 < len(poison["why"]) <= 200
    assert [one["event"] for one in logs] == ["message-set-aside"]


def test_a_timer_of_what_cannot_be_read_is_set_aside_at_once() -> None:
    def handle(_timer: Timer) -> None:
        raise Corrupt("the row cannot be read")

    watched = Watched(handle)
    watched.put()
    assert watched.look() == 1
    (poison,) = map(json.loads, watched.left("poison"))
    assert (poison["text"], poison["why"]) == (TIMER.text(), "the row cannot be read")
    assert watched.left() == []


def test_what_cannot_be_set_aside_stays() -> None:
    watched = Watched(around=At(0, of="put", before=failing(ServiceUnavailable("storage is away"))))
    watched.queues.put("claims", "nonsense", AT_ONCE)
    with pytest.raises(ServiceUnavailable):
        watched.look()
    watched.clock.advance(LEASE)
    assert watched.look() == 1
    assert len(watched.left("poison")) == 1
    assert watched.left() == []


def test_what_somebody_else_received_since_is_left_to_them() -> None:
    def handle(_timer: Timer) -> None:
        watched.clock.advance(LEASE)
        watched.queues.receive("claims", 1, LEASE)

    watched = Watched(handle)
    watched.put()
    assert watched.look() == 1
    assert len(watched.left()) == 1


@pytest.mark.parametrize("error", [None, ServiceUnavailable("storage is away")])
def test_a_handled_timer_that_cannot_be_removed_fires_again(error: Exception | None) -> None:
    before = failing(error) if error else None
    watched = Watched(around=At(0, of="remove", before=before))
    watched.put()
    assert watched.look() == 1
    assert len(watched.left()) == (1 if error else 0)


def test_a_timer_that_another_process_has_received_meanwhile_is_left_to_it() -> None:
    watched = Watched()

    def stopped_for_a_while(act: Callable[[LeasedMessage], None], items: Sequence[LeasedMessage]) -> None:
        watched.clock.advance(LEASE)
        watched.queues.receive("claims", 1, LEASE)
        for item in items:
            item.renew()
            act(item)

    for _ in range(2):
        watched.put()
    assert watched.watcher.look(stopped_for_a_while) == 2
    assert len(watched.handled) == 1
    assert len(watched.left()) == 1


def test_a_handler_is_told_when_to_stop_well_before_its_lease_ends() -> None:
    stops = []
    watched = Watched()
    watcher = Watcher("claims", watched.queues, lambda _timer, stop: stops.append(stop), watched.clock, IDLE)
    watched.put()
    watcher.look(one_by_one)
    assert stops == [NOW + 5 * SECOND]
    assert stops[0] + LEASE / 2 < NOW + LEASE


def test_what_is_handed_over_is_handled_without_being_received() -> None:
    calls = Calls()
    watched = Watched(around=calls)
    lease = watched.put(30 * SECOND)
    assert watched.watcher.hand(Armed(TIMER, lease))
    watched.run(AT_ONCE + SECOND)
    assert watched.handled == [(NOW, TIMER)]
    assert watched.left() == []
    assert calls.names.index("remove") <= 1


def test_what_is_handed_over_does_not_keep_the_queue_from_being_looked_at() -> None:
    watched = Watched()
    received = replace(TIMER, task_id=slugid())
    watched.put(timer=received)
    for _ in range(40):
        lease = watched.put(30 * SECOND)
        watched.watcher.hand(Armed(TIMER, lease))
    while watched.look():
        pass
    timers = [timer for _, timer in watched.handled]
    assert timers.count(TIMER) == 40
    assert timers.count(received) == 1


def test_of_very_many_that_are_handed_over_most_wait_in_the_queue() -> None:
    watched = Watched()
    taken = [watched.watcher.hand(Armed(TIMER, watched.put(30 * SECOND))) for _ in range(100)]
    assert taken == [True] * 64 + [False] * 36


def test_more_timers_than_one_look_takes_are_handled_without_a_pause() -> None:
    watched = Watched()
    for _ in range(100):
        watched.put()
    watched.run(SECOND / 10)
    assert len(watched.handled) == 100
    assert set(watched.delays) == {AT_ONCE}


def test_an_idle_queue_is_asked_less_and_less_often() -> None:
    watched = Watched()
    watched.run(2 * MINUTE)
    assert watched.wake.waits == [0.25, 0.5, 1, 2, 4, 8, *[15] * 7]


def test_a_timer_of_another_process_is_found_within_the_longest_pause() -> None:
    watched = Watched()
    watched.put(95 * SECOND)
    watched.run(3 * MINUTE)
    (delay,) = watched.delays
    assert 95 * SECOND <= delay <= 95 * SECOND + IDLE
    waits = watched.wake.waits
    assert waits[waits.index(15) :].count(0.25) == 1  # it is looked for often again


@pytest.mark.parametrize("milliseconds", [1, 322, 500, 999, 1000])
def test_timers_of_this_process_are_not_waited_for_longer_than_they_take_to_fire(milliseconds: int) -> None:
    watched = Watched()
    watched.clock.advance(timedelta(milliseconds=milliseconds))
    delays = [seconds * SECOND for seconds in (300, 90, 97, 92, 97, 1)]
    for delay in delays:
        watched.put(delay)
        watched.watcher.expect(watched.clock.now() + delay)
    began = watched.clock.now()
    watched.run(10 * MINUTE)
    for when, delay in zip((when for when, _ in watched.handled), sorted(delays), strict=True):
        assert delay <= when - began <= delay + 2 * SECOND


def test_an_earlier_timer_wakes_the_watcher() -> None:
    watched = Watched()
    watched.watcher.expect(NOW + MINUTE)
    watched.wake.clear()
    watched.watcher.expect(NOW + 2 * MINUTE)
    assert not watched.wake.is_set()
    watched.watcher.expect(NOW + SECOND)
    assert watched.wake.is_set()


@pytest.mark.parametrize("error", [ServiceUnavailable("storage is away"), ValueError("a defect")])
def test_a_watcher_goes_on_after_a_look_that_failed(
    error: Exception, logs: list[MutableMapping[str, Any]]
) -> None:
    watched = Watched(around=At(0, of="receive", before=failing(error)))
    watched.put()
    watched.run(MINUTE)
    assert len(watched.handled) == 1
    assert watched.delays[0] > AT_ONCE  # not at once: it may last
    assert [one["event"] for one in logs] == (["watcher-failed"] if isinstance(error, ValueError) else [])


def test_a_watcher_of_real_threads_is_woken_by_what_it_is_handed_and_ends_when_told() -> None:
    watched = Watched()
    done, stop = threading.Event(), threading.Event()
    watcher = Watcher(
        "claims", watched.queues, lambda _timer, _stop: done.set(), watched.clock, timedelta(hours=1)
    )
    thread = threading.Thread(target=watcher.run, args=[stop, one_by_one])
    thread.start()
    watcher.hand(Armed(TIMER, watched.put(MINUTE)))
    assert done.wait(30)
    stop.set()
    watcher.wake()
    thread.join(30)
    assert not thread.is_alive()


def test_what_was_handed_to_a_process_that_ends_is_visible_to_others_at_once() -> None:
    watched = Watched()
    leases = [watched.put(30 * SECOND) for _ in range(2)]
    for lease in leases:
        assert watched.watcher.hand(Armed(TIMER, lease))
    watched.queues.remove("claims", leases[0])  # somebody else was done with it
    watched.watcher.hand_back()
    assert [message.text for message in watched.queues.peek("claims", 32)] == [TIMER.text()]
    assert not watched.watcher.hand(Armed(TIMER, leases[1]))
    assert watched.handled == []
