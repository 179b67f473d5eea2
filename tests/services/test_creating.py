"""createTask: once answered, a task is never lost."""

import pytest

from legacy_queue.domain.errors import InputError, RequestConflict, ResourceNotFound, ServiceUnavailable
from legacy_queue.domain.ids import slugid
from tests.services.bench import (
    ALICE,
    BOB,
    HOUR,
    MINUTE,
    NOW,
    SECOND,
    At,
    Bench,
    Calls,
    Crash,
    failing,
    task_body,
)

GROUP = "eWIgwMgxSfeXQ36iBbOxiQ"


def test_a_created_task_is_pending_and_its_message_visible_at_once() -> None:
    bench = Bench()
    task_id = bench.create()
    assert bench.states(task_id) == ["pending"]
    message = bench.receive_one()
    assert (message.task_id, message.run_id) == (task_id, 0)


def test_a_message_ends_with_its_task() -> None:
    bench = Bench()
    task_id = bench.create(deadline="2030-01-02T04:04:05.999Z")
    (message,) = bench.messages()
    left = bench.task(task_id).definition.deadline - message.expires
    assert 0 * SECOND <= left < SECOND


def test_a_task_too_near_to_its_deadline_for_a_message_gets_none() -> None:
    bench = Bench()
    bench.create(deadline="2030-01-02T03:04:06.100Z")
    assert bench.messages() == []


def test_creating_the_same_again_answers_the_same_and_offers_it_again() -> None:
    bench = Bench()
    task_id = slugid()
    first = bench.services.tasks.create(task_id, task_body())
    bench.clock.advance(SECOND)
    assert bench.services.tasks.create(task_id, task_body()) == first
    assert [run_id for run_id, _ in bench.runs_to_come()] == [0, 0]


def test_the_double_of_a_message_runs_nothing_twice() -> None:
    bench = Bench()
    task_id = slugid()
    for _ in range(2):
        bench.services.tasks.create(task_id, task_body())
    first, second = bench.receive()
    bench.claim(first, ALICE)
    with pytest.raises(RequestConflict):
        bench.claim(second, BOB)
    assert bench.states(task_id) == ["running by alice"]
    assert [run_id for run_id, _ in bench.runs_to_come()] == [1]  # the double was withdrawn


def test_creating_a_claimed_task_again_offers_nothing() -> None:
    bench = Bench()
    task_id = bench.claimed()
    assert bench.services.tasks.create(task_id, task_body()).state == "running"
    assert [run_id for run_id, _ in bench.runs_to_come()] == [1]


def test_another_definition_under_the_same_task_id_is_a_conflict() -> None:
    bench = Bench()
    task_id = bench.create()
    with pytest.raises(RequestConflict, match="retries differs"):
        bench.services.tasks.create(task_id, task_body(retries=1))
    assert bench.task(task_id).retries_left == 5


def test_a_group_has_one_scheduler() -> None:
    bench = Bench()
    bench.create(taskGroupId=GROUP, schedulerId="first")
    bench.create(taskGroupId=GROUP, schedulerId="first")
    other = slugid()
    with pytest.raises(RequestConflict, match=f"{GROUP} has the schedulerId 'first'"):
        bench.services.tasks.create(other, task_body(taskGroupId=GROUP, schedulerId="second"))
    with pytest.raises(ResourceNotFound):
        bench.services.tasks.load(other)


def test_a_refused_definition_leaves_no_task_behind() -> None:
    calls = Calls()
    services = Bench().replica(calls)
    with pytest.raises(InputError):
        services.tasks.create(slugid(), task_body(dependencies=[GROUP]))
    assert calls.names == ["load"]


def test_a_task_that_was_never_created_is_not_found() -> None:
    services = Bench().services
    for find in (services.tasks.load, services.tasks.recall, services.tasks.cancel):
        with pytest.raises(ResourceNotFound, match="there is no task"):
            find(slugid())


@pytest.mark.parametrize("call", range(5))
@pytest.mark.parametrize("error", [Crash(), ServiceUnavailable("storage is away")])
@pytest.mark.parametrize("is_done", [False, True])
def test_a_create_that_got_no_answer_is_cured_by_repeating_it(
    call: int, error: Exception, is_done: bool
) -> None:
    bench = Bench()
    fault = At(call, after=failing(error)) if is_done else At(call, before=failing(error))
    task_id = slugid()
    try:
        bench.replica(fault).tasks.create(task_id, task_body())
    except (Crash, ServiceUnavailable):
        bench.clock.advance(HOUR / 10)
        bench.services.tasks.create(task_id, task_body())
    bench.run_timers(MINUTE)  # what is left to do after the answer, too
    assert fault.happened is (call < 4)
    messages = bench.receive()
    assert {message.run_id for message in messages} == {0}
    bench.claim(messages[0])
    assert bench.states(task_id) == ["running by alice"]


def test_a_task_may_be_recalled_only_for_its_definition() -> None:
    bench = Bench()
    services = bench.replica(remembers=True)
    task_id = bench.create()
    assert services.tasks.recall(task_id).state == "pending"
    bench.claim(bench.receive_one())
    assert services.tasks.recall(task_id).state == "pending"
    assert services.tasks.load(task_id).state == "running"
    assert services.tasks.recall(task_id).runs[0].started == NOW
