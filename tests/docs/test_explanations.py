"""Numbers that the explanation pages name are those of the code."""

import re
from datetime import timedelta
from pathlib import Path

import pytest

from legacy_queue.adapters.azure.connection import StorageTimeouts
from legacy_queue.adapters.azure.rest import QUEUE, TABLE
from legacy_queue.config.settings import Settings
from legacy_queue.domain import artifact, authentication, definition, hawk, ids, timer
from legacy_queue.services import (
    assembly,
    background,
    claims,
    clock_control,
    event_feed,
    periodic_jobs,
    poller_registry,
    task_queues,
)
from legacy_queue.services import timers as process_timers

FOLDER = Path(__file__).parents[2] / "docs" / "explanation"
_, LONGEST_ID = map(int, re.findall(r"\{(\d+),(\d+)\}", ids.IDENTIFIER)[0])
DEFAULTS = Settings()


def minutes(duration: timedelta) -> int:
    return duration // timedelta(minutes=1)


def seconds(duration: timedelta) -> int:
    return duration // timedelta(seconds=1)


FACTS = [
    ("clock", f"`created` may differ by {minutes(definition.CLOCK_DRIFT)} minutes"),
    ("clock", f"`deadline` is at most {definition.MAX_DEADLINE.days} days away"),
    ("clock", f"it waits {seconds(DEFAULTS.claim_work_wait)} s of real time"),
    ("clock", f"and {minutes(claims.CREDENTIALS_DRIFT)} minutes more"),
    ("clock", f"{clock_control.MAX_OFFSET.days:,} days ahead"),
    ("clock", f"put again by the sweeper, {minutes(timer.FIRST_LOOK)} minutes after"),
    ("http-contract", f"1 to {LONGEST_ID} letters, digits, `-` and `_`"),
    ("http-contract", f"at most {ids.MAX_RUNS} runs are created for one task"),
    ("http-contract", f"A clock may differ by {minutes(hawk.MAX_SKEW)} minutes"),
    ("http-contract", f"at most {authentication.MAX_LIFE.days} days apart"),
    ("http-contract", f"{minutes(authentication.MAX_DRIFT)} minutes of drift"),
    ("http-contract", f"a `seed` of {authentication.SEED_LENGTH} characters"),
    ("http-contract", f"`created` is within {minutes(definition.CLOCK_DRIFT)} minutes of now"),
    ("http-contract", f"at most {definition.MAX_DEADLINE.days} days (and 15 minutes) away"),
    ("http-contract", f"at most {definition.MAX_SCOPES // 1024} KiB as JSON"),
    ("http-contract", f"at most {definition.MAX_DEFINITION // 1024} KiB"),
    ("http-contract", f"end {minutes(claims.CREDENTIALS_DRIFT)} minutes after `takenUntil`"),
    ("http-contract", f"({minutes(artifact.UPLOAD_WINDOW)} with drift)"),
    ("http-contract", "claimWork takes up to 32 `tasks`"),
    ("http-contract", f"within {seconds(task_queues.MAX_AGE)} seconds for what others did"),
    ("decisions", f"at most {seconds(task_queues.MAX_AGE)} seconds old"),
    ("protocols", f"`sas-life` ({minutes(DEFAULTS.sas_life)} minutes)"),
    ("protocols", f"`poll-visibility`, {minutes(DEFAULTS.poll_visibility)} minutes"),
    ("protocols", f"visible after {seconds(claims.OFFERED_AGAIN_AFTER)} seconds"),
    ("protocols", f"for {poller_registry.POLL_INTERVAL.total_seconds()} s"),
    ("protocols", f"at most about {poller_registry.MAX_POLLS} polls per second"),
    ("protocols", f"`claim-work-wait` ({seconds(DEFAULTS.claim_work_wait)} s)"),
    ("recovery", f"lease of {seconds(process_timers.LEASE)} seconds, renewed after half of that"),
    ("recovery", f"receives timers (every {seconds(background.Pace().receive)} seconds)"),
    ("recovery", f"Every {minutes(assembly.SWEEP_INTERVAL)} minutes one process"),
    ("recovery", f"in pages of {periodic_jobs.PAGE}"),
    ("recovery", f"more than {minutes(timer.FIRST_LOOK)} minutes over"),
    ("recovery", f"a lease of {seconds(periodic_jobs.LEASE)} seconds in the table"),
    ("recovery", f"(the last {event_feed.MAX_EVENTS:,})"),
    ("recovery", f"{StorageTimeouts().connect:g} seconds to connect and {StorageTimeouts().read:g} to read"),
    ("azurite", f"set its `api_version` to `{QUEUE.version}`"),
]


@pytest.mark.parametrize(("page", "fact"), FACTS)
def test_a_page_states_the_numbers_of_the_code(page: str, fact: str) -> None:
    assert fact in " ".join((FOLDER / f"{page}.md").read_text().split())


def test_a_request_to_storage_is_tried_three_times() -> None:
    assert [len(service.delays) + 1 for service in (QUEUE, TABLE)] == [3, 3]
    assert "tried up to three times" in " ".join((FOLDER / "recovery.md").read_text().split())
