"""The definitions that ``create_task`` makes."""

from datetime import UTC, datetime, timedelta

from legacy_queue.testing.definitions import definition, pool_name

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def test_every_required_field_has_a_default() -> None:
    made = definition(NOW, {})
    assert set(made) == {"provisionerId", "workerType", "created", "deadline", "payload", "metadata"}
    assert set(made["metadata"]) == {"name", "description", "owner", "source"}
    assert (made["created"], made["deadline"]) == ("2026-01-02T03:04:05.000Z", "2026-01-03T03:04:05.000Z")


def test_a_field_is_named_as_in_python_and_replaces_the_default() -> None:
    made = definition(NOW, {"worker_type": "builds", "task_group_id": "g", "payload": {"a_b": 1}})
    assert (made["workerType"], made["taskGroupId"], made["payload"]) == ("builds", "g", {"a_b": 1})


def test_a_time_may_be_a_datetime_or_a_duration_from_now_on() -> None:
    made = definition(NOW, {"deadline": timedelta(hours=1), "expires": NOW + timedelta(days=2)})
    assert (made["deadline"], made["expires"]) == ("2026-01-02T04:04:05.000Z", "2026-01-04T03:04:05.000Z")


def test_given_metadata_replaces_only_the_same_names() -> None:
    assert definition(NOW, {"metadata": {"name": "mine"}})["metadata"] == {
        **definition(NOW, {})["metadata"],
        "name": "mine",
    }


def test_a_task_queue_id_replaces_both_names_of_the_pool() -> None:
    made = definition(NOW, {"task_queue_id": "p/w"})
    assert made["taskQueueId"] == "p/w"
    assert not {"provisionerId", "workerType"} & made.keys()


def test_a_body_replaces_all_defaults_and_fields_replace_its_own() -> None:
    body = {"provisionerId": "p", "metadata": {"name": "its"}}
    assert definition(NOW, {"worker_type": "w"}, body) == {**body, "workerType": "w"}


def test_a_pool_name_has_defaults_for_missing_parts() -> None:
    assert pool_name("w", "p", None) == "p/w"
    assert pool_name(None, None, "p/w") == "p/w"
    assert pool_name("w", None, None) == "test-provisioner/w"
