from legacy_queue.domain.call_statistics import (
    Caller,
    CallKind,
    Calls,
    CallStatistics,
    caller_name,
    merge_clients,
)
from legacy_queue.domain.worker_record import WorkerPath, WorkerRecord
from tests.domain.sample_tasks import DAY, HOUR, NOW, SECOND

POOL = "provisioner", "type"
CLAIM: CallKind = ("claimTask", ())


def worker(name: str, client: str) -> Caller:
    record = WorkerRecord.new(WorkerPath(*POOL, "group", name), NOW)
    return Caller(*POOL, f"group/{name}", CallStatistics({CLAIM: Calls(1, NOW, NOW)}, client), record)


def test_calls_are_counted_by_kind_and_the_count_restarts_after_ten_days_without_a_call() -> None:
    kinds: list[CallKind] = [CLAIM, ("claimTask", ("receipt",))]
    once = Calls(1, NOW, NOW)
    statistics = CallStatistics()
    for kind in (kinds[0], kinds[0], kinds[1]):
        statistics = statistics.counted(kind, once)
    statistics = statistics.counted(kinds[0], Calls(1, NOW + SECOND, NOW + SECOND))
    assert statistics.calls == {kinds[0]: Calls(3, NOW, NOW + SECOND), kinds[1]: once}
    late = Calls(1, NOW + 10 * DAY, NOW + 10 * DAY)
    assert statistics.counted(kinds[1], late).calls == {**statistics.calls, kinds[1]: late}


def test_the_polls_of_a_client_that_claims_for_only_one_worker_count_for_this_worker() -> None:
    polls = CallStatistics({("pollTaskUrls", ()): Calls(1, NOW, NOW + HOUR)})
    client, elsewhere = Caller(*POOL, "client", polls), Caller("p", "w", "client", polls)
    one, other = worker("one", "client"), worker("other", "another")
    first, merged, last = merge_clients([client, elsewhere, one, other])
    assert (first, last) == (elsewhere, other)
    assert merged.statistics.calls == {**polls.calls, **one.statistics.calls}
    assert (merged.worker, merged.last_call) == (one.worker, NOW + HOUR)
    shared = [client, one, worker("other", "client")]
    assert merge_clients(shared) == shared


def test_a_caller_is_named_after_its_client_id_without_the_task_part() -> None:
    of_task = "task-client/VLdaX5vAQ0iW8JIr3sGQZw/0/on/group/alice/until/1893553445"
    assert caller_name(of_task) == "task-client/*/on/group/alice"
    assert caller_name("task-client/of/somebody/else") == "task-client/of/somebody/else"
    assert caller_name("x" * 1000) == "x" * 255
