"""legacy-queue conform: does a worker follow the protocol?"""

import json
import os
from datetime import timedelta
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import click

from legacy_queue import conform as conformance
from legacy_queue.cli.completion import complete_rules
from legacy_queue.cli.progress import progress
from legacy_queue.cli.queue_options import (
    QueueCommand,
    called_queue,
    failing_with_a_sentence,
    json_option,
    pool_option,
    root_url_option,
)
from legacy_queue.config.values import Value, one_of, without_secrets
from legacy_queue.conform.rules import RULES
from legacy_queue.domain.times import parse_duration

_SUFFIXES = (".html", ".json", ".xml")


def payloads_of(_ctx: click.Context, _param: click.Parameter, value: str) -> Any:
    """A payload for each thing that a task does, built in or from a file. One payload is also possible."""
    if value in conformance.FORMS:
        return conformance.FORMS[value]
    try:
        payloads = json.loads(Path(value).read_text())
        has_several = payloads.keys() & conformance.FORMS["sample"].keys()
    except (OSError, ValueError, AttributeError):
        names = ", ".join(conformance.FORMS)
        raise click.BadParameter(
            f"{value!r}: expected a file that contains a JSON object, or one of {names}"
        ) from None
    if has_several and "completes" not in payloads:
        raise click.BadParameter(
            f"{value!r}: expected a payload for a task that completes, under the key completes"
        )
    return payloads if has_several else {"completes": payloads}


def _report_file(_ctx: click.Context, _param: click.Parameter, value: Path | None) -> Path | None:
    """Returns the path. If it cannot be written, raises now: later, the whole run would be lost."""
    if value and value.suffix not in _SUFFIXES:
        raise click.BadParameter(f"{str(value)!r}: expected a name that ends in .html, .json or .xml")
    if value:
        is_new = not os.path.lexists(value)
        try:
            # to open a pipe that has no reader would block
            os.close(os.open(value, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK, 0o666))
        except OSError as error:
            raise click.BadParameter(f"{str(value)!r} cannot be written: {error.strerror}") from None
        if is_new:
            value.unlink()
    return value


def _refuse_torture(_ctx: click.Context, _param: click.Parameter, value: str | None) -> None:
    if value is not None:
        raise click.UsageError(
            "--torture and --steps were removed: run your worker against the queue of `legacy-queue up`, add "
            "faults there, and check with --observe what the worker did"
        )


def _known_rules(_ctx: click.Context, _param: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    known = [rule.id for rule in RULES]
    for value in values:
        if value not in known:
            near = get_close_matches(value, known, 1, 0)[0]
            raise click.BadParameter(f"{value!r}: expected a rule; the nearest is {near!r}")
    return values


class _NotJudged(click.ClickException):
    """The worker cannot be judged."""

    exit_code = 2


@click.command(cls=QueueCommand, context_settings={"allow_interspersed_args": False})
@click.option(
    "--protocol",
    type=one_of(*conformance.PROTOCOLS),
    metavar="NAME",
    show_default="the one that it speaks",
    help=f"The protocol that the worker should speak: {', '.join(conformance.PROTOCOLS)}.",
)
@click.option(
    "--rule",
    "rules",
    multiple=True,
    metavar="RULE",
    callback=_known_rules,
    shell_complete=complete_rules,
    help="Check only this rule; may be repeated.",
)
@click.option(
    "--payload",
    "payloads",
    callback=payloads_of,
    default="sample",
    metavar="KIND|FILE",
    help="The payloads of the tasks: a JSON file, or the kind of worker that they are for: "
    f"{', '.join(conformance.FORMS)}.",
)
@click.option(
    "--report",
    "file",
    type=click.Path(path_type=Path),
    callback=_report_file,
    metavar="FILE",
    help="Also write the report to this file: .html, .json, or .xml (for JUnit).",
)
@click.option("--torture", "--steps", expose_value=False, hidden=True, callback=_refuse_torture)
@click.option(
    "--claim",
    type=Value("a duration such as 90s, 3m40s or 2h", parse_duration, name="duration"),
    show_default="12s, or 3m40s for --payload generic-worker",
    help="How long a claim lasts. The whole run takes about twice this, plus 30 seconds.",
)
@click.option(
    "--observe", is_flag=True, help="Start no worker. Check what the workers of a running queue have done."
)
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
    """Check a worker against the protocol documents, rule by rule.

    COMMAND starts your worker. It is run in about 20 situations, each with a new queue in memory. Its
    environment contains TASKCLUSTER_ROOT_URL, TASKCLUSTER_CLIENT_ID, TASKCLUSTER_ACCESS_TOKEN,
    LEGACY_QUEUE_BASE_URL, PROVISIONER_ID, WORKER_TYPE, WORKER_GROUP and WORKER_ID. In COMMAND, {rootUrl},
    {baseUrl}, {provisionerId}, {workerType}, {workerGroup} and {workerId} are replaced by these values.

    The exit code is 1 if a rule is broken or no rule was exercised, and 2 if the worker cannot be judged.
    """
    if observe == bool(words):
        raise click.UsageError("expected the command that starts your worker after --, or --observe")
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
    """The journal of the running queue. Raises ValueError if its clock was moved, unlike its workers'."""
    names = ("LEGACY_QUEUE_BASE_URL", "TASKCLUSTER_CLIENT_ID", "TASKCLUSTER_ACCESS_TOKEN")
    queue = called_queue(root_url, *map(os.environ.get, names))
    clock = queue.call("GET", "/control/v1/clock", expected="offset")
    if clock["offset"] or clock["frozen"]:
        raise ValueError(
            f"the clock of the queue at {without_secrets(queue.root_url)} was moved, but its workers' "
            "was not: run `legacy-queue reset`, let the workers run again, and do not move the clock"
        )
    return queue.journal()[0]
