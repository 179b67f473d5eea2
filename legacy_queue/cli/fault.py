"""legacy-queue fault: faults that a server with ``--control`` causes in requests."""

from collections.abc import Mapping
from typing import Any

import click

from legacy_queue.cli.control import DefaultGroup
from legacy_queue.cli.queue_options import CalledQueue, Report, reporting
from legacy_queue.cli.tables import aligned

_EFFECTS = ("delay", "status", "message", "drop", "sas", "double", "lose", "stale")


@click.group(cls=DefaultGroup)
def fault() -> None:
    """List the faults, add a fault, or remove it."""


@fault.command("list")
@reporting
def list_faults(queue: CalledQueue) -> Report:
    """Print the faults in force, and how often each has fired. This is what `legacy-queue fault` does."""
    answer = queue.ask("GET", "/control/v1/faults", "faults")
    heads = ("FAULT", "ENDPOINT", "OF", "WHAT", "TIMES", "FIRED")
    lines = aligned([heads, *map(_row, answer["faults"])]) if answer["faults"] else ["There are no faults."]
    return answer, "\n".join(lines)


@fault.command()
@click.argument("endpoint")
@click.option(
    "--task", "taskId", metavar="TASK_ID", show_default="any", help="Only requests about this task."
)
@click.option(
    "--worker", metavar="WORKER_GROUP/WORKER_ID", show_default="any", help="Only requests of this worker."
)
@click.option(
    "--times", type=click.IntRange(min=1), show_default="always", help="End after so many of the requests."
)
@click.option(
    "--probability",
    type=float,
    metavar="P",
    show_default="1",
    help="The probability that a request meets the fault, above 0.",
)
@click.option(
    "--seed",
    type=int,
    show_default="none",
    help="With a probability: the same requests meet the fault each time.",
)
@click.option("--status", type=int, show_default="none", help="Answer with this error, 400 to 599.")
@click.option("--message", show_default="the server's own", help="The message of that error.")
@click.option(
    "--drop",
    type=click.Choice(["before", "after"]),
    show_default="none",
    help="Close the connection without an answer, before the request is handled or after.",
)
@click.option(
    "--sas",
    metavar="expired|DURATION",
    show_default="none",
    help="Answer with signed URLs that are expired, or expire in 10s.",
)
@click.option("--double", is_flag=True, help="Deliver a received message twice.")
@click.option("--lose", is_flag=True, help="Delete a message instead of delivering it.")
@click.option("--stale", is_flag=True, help="Deliver a message with a receipt that is no longer valid.")
@click.option(
    "--delay",
    metavar="DURATION",
    show_default="none",
    help="Wait first, for 2s or 200ms; may be combined with the others.",
)
@reporting
def add(queue: CalledQueue, endpoint: str, **options: Any) -> Report:
    """Cause a fault in requests to ENDPOINT from now on, and print the fault's id.

    ENDPOINT is a method of the reference such as claimTask, or azure.receive, azure.delete or upload.
    """
    fields = {name: value for name, value in options.items() if value not in (None, False)}
    answer = queue.ask("POST", "/control/v1/faults", "faultId", json={"endpoint": endpoint, **fields})
    return answer, answer["faultId"]


@fault.command()
@click.argument("fault_id", metavar="FAULT_ID")
@reporting
def remove(queue: CalledQueue, fault_id: str) -> Report:
    """End a fault, and say how often it happened."""
    answer = queue.ask("DELETE", f"/control/v1/faults/{fault_id}", "faultId")
    return answer, f"It happened {_times(answer['fired'])}." if answer["fired"] else "It never happened."


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _row(fault: Mapping[str, Any]) -> tuple[str, ...]:
    filters = (("task", "taskId"), ("worker", "worker"))
    of = [f"{kind} {fault[name]}" for kind, name in filters if name in fault]
    what = [name if fault[name] is True else f"{name} {fault[name]}" for name in _EFFECTS if fault.get(name)]
    what += [f"at {fault['probability']:g}"] if "probability" in fault else []
    times = str(fault.get("times", "always"))
    fired = str(fault["fired"])
    return fault["faultId"], fault["endpoint"], " ".join(of) or "any", ", ".join(what), times, fired
