"""What a task's page shows first: how bad its state is, and a row for each run."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from legacy_queue.domain.times import duration_words, parse_time

LOGS = "public/logs/"
# of what a task waits for first; if it is not here, the task is as it should be
_GRAVITIES: Mapping[str, str] = {
    "never-polled": "bad",
    "quarantined": "bad",
    "proof-required": "bad",
    "dependency-failed": "bad",
    "claim-expired": "bad",
    "deadline-passed": "bad",
    "message-missing": "warn",
    "running-canceled": "warn",
    "delayed": "warn",
}
_OF_RESOLVED = {"completed": "good", "failed": "bad", "exception": "warn"}


def gravity(state: str, situation: str) -> str:
    """How bad it is that a task in that state waits for this first: "bad", "warn", "info" or "good"."""
    return _OF_RESOLVED.get(state) or _GRAVITIES.get(situation, "info")


def run_rows(
    answer: Mapping[str, Any], files: Sequence[Mapping[str, Any]], last_log: Mapping[str, Any] | None
) -> Iterator[Mapping[str, Any]]:
    """Each run of the task, with its ``duration`` in words and its ``log``, which is an artifact or None.

    ``files`` are artifacts of all runs, perhaps not all of them: so the log of the last run comes separately.
    """
    runs = answer["status"]["runs"]
    logs = {file["runId"]: file for file in reversed(files) if file["name"].startswith(LOGS)}
    if last_log:
        logs[last_log["runId"]] = last_log
    for run in runs:
        end = run.get("resolved", answer["now"])
        claimed = run.get("started")
        seconds = (parse_time(end) - parse_time(claimed)).total_seconds() if claimed else None
        duration = "" if seconds is None else duration_words(max(0.0, seconds))
        yield {**run, "duration": duration, "log": logs.get(run["runId"])}
