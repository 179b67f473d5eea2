"""Words for the shell's completion that only the running queue knows.

TAB must be quick and print nothing but words: without a queue, or without its permission, there are none.
"""

import io
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, suppress
from typing import Any

import click
from click.shell_completion import CompletionItem

from legacy_queue.history.words import printable

_TIMEOUTS = 0.5, 1.5  # seconds to connect, and for an answer
_MAX_ITEMS = 100
_OTHER_ENDPOINTS = ("azure.receive", "azure.delete", "upload")  # no reference names them

Word = tuple[str, str]  # with what zsh and fish print next to it
Completion = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def _completion(path: str, words: Callable[[Any], Iterator[Word]]) -> Completion:
    """A ``shell_complete``: the ``words`` in the queue's answer to a GET of the path."""

    def complete(ctx: click.Context, _param: click.Parameter, begun: str) -> list[CompletionItem]:
        from legacy_queue.cli.queue_options import QUEUE_PARAMETERS, called_queue  # it imports this module

        found: dict[str, str] = {}
        with (
            suppress(Exception),
            redirect_stderr(io.StringIO()),
        ):  # a traceback would land in the command line
            given: dict[str, Any] = {name: ctx.params.get(name) for name in QUEUE_PARAMETERS}
            queue = called_queue(**given)
            url = queue.root_url + path
            found = dict(words(queue.send("GET", url, queue.credentials, timeout=_TIMEOUTS).json()))
        return [CompletionItem(word, help=text) for word, text in found.items() if word.startswith(begun)]

    return complete


def _tasks(answer: Any) -> Iterator[Word]:
    for task in answer["tasks"]:
        yield task["taskId"], f"{task['state']}: {printable(task['name'])}"


def _groups(answer: Any) -> Iterator[Word]:
    for task in answer["tasks"]:
        yield task["taskGroupId"], f"of {printable(task['name'])}"


def _pools(answer: Any) -> Iterator[Word]:
    for pool in answer["pools"]:
        yield pool["taskQueueId"], f"{pool['pendingTasks']} pending"


def _faults(answer: Any) -> Iterator[Word]:
    for fault in answer["faults"]:
        yield fault["faultId"], fault["endpoint"]


def _endpoints(answer: Any) -> Iterator[Word]:
    yield from ((entry["name"], entry["title"]) for entry in answer["entries"] if "name" in entry)
    yield from ((name, "") for name in _OTHER_ENDPOINTS)


_TASKS = f"/inspect/v1/tasks?state=all&limit={_MAX_ITEMS}"
complete_tasks = _completion(_TASKS, _tasks)
complete_groups = _completion(_TASKS, _groups)
complete_pools = _completion("/inspect/v1/pools", _pools)
complete_faults = _completion("/control/v1/faults", _faults)
complete_endpoints = _completion("/references/queue/v1/api.json", _endpoints)


def complete_rules(_ctx: click.Context, _param: click.Parameter, begun: str) -> list[CompletionItem]:
    """The rules of conform, which need no queue."""
    from legacy_queue.conform.rules import RULES  # few commands need them

    return [CompletionItem(rule.id, help=rule.sentence) for rule in RULES if rule.id.startswith(begun)]
