"""legacy-queue conform: does a worker follow the protocol?"""

import json
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from legacy_queue import conform as conformance
from legacy_queue.cli.progress import progress
from legacy_queue.cli.queue_options import (
    called_queue,
    failing_with_a_sentence,
    json_option,
    pool_option,
    root_url_option,
)
from legacy_queue.config.values import Value
from legacy_queue.domain.times import parse_duration

_SUFFIXES = (".html", ".json", ".xml")


def payloads_of(_ctx: click.Context, _param: click.Parameter, value: str) -> Any:
    """The payloads by what a task does: built in, or in a file, which may have that of one task alone."""
    if value in conformance.FORMS:
        return conformance.FORMS[value]
    try:
        payloads = json.loads(Path(value).read_text())
        has_several = payloads.keys() & conformance.FORMS["sample"].keys()
    except (OSError, ValueError, AttributeError):
        names = ", ".join(conformance.FORMS)
        raise click.BadParameter(f"{value!r} is no file with a JSON object, and none of {names}") from None
    if has_several and "completes" not in payloads:
        raise click.BadParameter(f"{value!r} has no payload of a task that completes")
    return payloads if has_several else {"completes": payloads}


def _report_file(_ctx: click.Context, _param: click.Parameter, value: Path | None) -> Path | None:
    """Refuses a path that cannot be written, before the run that would be lost."""
    if value and value.suffix not in _SUFFIXES:
        raise click.BadParameter(f"{str(value)!r}: expected a name that ends in {', '.join(_SUFFIXES)}")
    if value:
        is_new = not os.path.lexists(value)
        try:
            # a pipe without a reader would block
            os.close(os.open(value, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK, 0o666))
        except OSError as error:
            raise click.BadParameter(f"{str(value)!r} cannot be written: {error.strerror}") from None
        if is_new:
            value.unlink()
    return value


def _refuse_torture(_ctx: click.Context, _param: click.Parameter, value: str | None) -> None:
    if value is not None:
        raise click.UsageError(
            "--torture and --steps were removed: start your worker on a queue of `legacy-queue up`, cause "
            "faults there, and judge what it did with --observe"
        )


class _NotJudged(click.ClickException):
    """The worker cannot be judged."""

    exit_code = 2


@click.command(context_settings={"allow_interspersed_args": False})
@click.option(
    "--protocol",
    type=click.Choice(conformance.PROTOCOLS),
    show_default="that which it speaks",
    help="The protocol that the worker should speak.",
)
@click.option("--rule", "rules", multiple=True, metavar="ID", help="Only this rule; may be repeated.")
@click.option(
    "--payload",
    "payloads",
    callback=payloads_of,
    default="sample",
    metavar="KIND|FILE",
    help=f"The tasks' payloads: those of {', '.join(conformance.FORMS)}, or of a JSON file.",
)
@click.option(
    "--report",
    "file",
    type=click.Path(path_type=Path),
    callback=_report_file,
    help="Write the report to this file too: .html, .json, or .xml for JUnit.",
)
@click.option("--torture", "--steps", expose_value=False, hidden=True, callback=_refuse_torture)
@click.option(
    "--claim",
    type=Value("a duration like 90s, 3m40s or 2h", parse_duration),
    metavar="DURATION",
    show_default="12s, or 3m40s for --payload generic-worker",
    help="How long a claim lasts. All takes twice as long, and half a minute.",
)
@click.option("--observe", is_flag=True, help="Start no worker: judge what a running queue has seen.")
@pool_option
@json_option
@root_url_option
@click.argument("words", nargs=-1, metavar="[-- COMMAND...]")
@failing_with_a_sentence(_NotJudged)
def conform(
    words: tuple[str, ...],
    protocol: str | None,
    rules: tuple[str, ...],
    payloads: Any,
    file: Path | None,
    claim: timedelta | None,
    observe: bool,
    pool: str | None,
    as_json: bool,
    root_url: str | None,
) -> None:
    """Judge a worker by the sentences of the protocol's documents.

    Exit code 1: a rule is broken, or none is shown. 2: the worker cannot be judged.

    Starts COMMAND in about 20 situations, each with a queue of its own in memory. Its environment has
    TASKCLUSTER_ROOT_URL, TASKCLUSTER_CLIENT_ID, TASKCLUSTER_ACCESS_TOKEN, LEGACY_QUEUE_BASE_URL,
    PROVISIONER_ID, WORKER_TYPE, WORKER_GROUP and WORKER_ID. In its words {rootUrl}, {baseUrl},
    {provisionerId}, {workerType}, {workerGroup} and {workerId} are replaced.
    """
    if observe == bool(words):
        raise click.UsageError("give the command of a worker behind --, or --observe")
    try:
        with progress() as show:
            if observe:
                reports = conformance.observe(_journal(root_url), pool)
            else:
                reports = [conformance.conform(words, protocol, payloads, rules, show, claim)]
    except (ValueError, conformance.ServerFailed) as error:
        raise _NotJudged(str(error)) from None
    click.echo(conformance.written(reports, ".json") if as_json else "\n\n".join(map(str, reports)))
    if file:
        try:
            file.write_text(conformance.written(reports, file.suffix), encoding="utf-8")
        except OSError as error:
            raise _NotJudged(f"{str(file)!r} cannot be written: {error.strerror}") from None
    if not all(report.held() for report in reports):
        raise SystemExit(1)


def _journal(root_url: str | None) -> Any:
    """The journal of the running queue. Raises ValueError if its times are not those that the workers saw."""
    names = ("LEGACY_QUEUE_BASE_URL", "TASKCLUSTER_CLIENT_ID", "TASKCLUSTER_ACCESS_TOKEN")
    queue = called_queue(root_url, *map(os.environ.get, names))
    clock = queue.call("GET", "/control/v1/clock", expected="offset")
    if clock["offset"] or clock["frozen"]:
        raise ValueError(
            "the clock of the queue was moved, which its workers did not see: reset the queue, let them run "
            "again, and leave the clock alone"
        )
    return queue.journal()[0]
