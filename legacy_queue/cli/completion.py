"""Words for the shell's completion that only the running queue knows.

TAB must be quick and print nothing but words. If no queue answers, or it refuses, there are none.
"""

import io
from collections.abc import Callable
from contextlib import redirect_stderr, suppress
from typing import Any

import click
from click.shell_completion import CompletionItem

from legacy_queue.history.words import printable

_TIMEOUTS = 0.5, 1.5  # seconds to connect, and for an answer

Completion = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def _completion(path: str, listed: str, word: str, text: str, *others: str) -> Completion:
    """A ``shell_complete`` that offers ``others``, and the property ``word`` of each item that is listed.

    The queue lists the items in the answer to ``path``. Next to the word, zsh and fish show ``text``, in
    which the properties of the item are filled in.
    """

    def complete(ctx: click.Context, _param: click.Parameter, begun: str) -> list[CompletionItem]:
        from legacy_queue.cli.queue_options import QUEUE_PARAMETERS, called_queue  # it imports this module

        found: dict[str, str] = {}
        # an error or a warning would land in the command line that is being written
        with suppress(Exception), redirect_stderr(io.StringIO()):
            given: dict[str, Any] = {name: ctx.params.get(name) for name in QUEUE_PARAMETERS}
            queue = called_queue(**given)
            answer = queue.send("GET", queue.root_url + path, queue.credentials, timeout=_TIMEOUTS).json()
            found = {item[word]: printable(text.format(**item)) for item in answer[listed] if word in item}
            found |= dict.fromkeys(others, "")
        return [CompletionItem(name, help=about) for name, about in found.items() if name.startswith(begun)]

    return complete


_TASKS = "/inspect/v1/tasks?state=all&limit=100"
complete_tasks = _completion(_TASKS, "tasks", "taskId", "{state}: {name}")
complete_groups = _completion(_TASKS, "tasks", "taskGroupId", "of {name}")
complete_pools = _completion("/inspect/v1/pools", "pools", "taskQueueId", "{pendingTasks} pending")
complete_faults = _completion("/control/v1/faults", "faults", "faultId", "{endpoint}")
_ENDPOINTS = "/references/queue/v1/api.json"
_OF_SIGNED_URLS = ("azure.receive", "azure.delete", "upload")  # no reference has them
complete_endpoints = _completion(_ENDPOINTS, "entries", "name", "{title}", *_OF_SIGNED_URLS)


def complete_rules(_ctx: click.Context, _param: click.Parameter, begun: str) -> list[CompletionItem]:
    """The rules of conform, which need no queue."""
    from legacy_queue.conform.rules import RULES  # few commands need them

    return [CompletionItem(rule.id, help=rule.sentence) for rule in RULES if rule.id.startswith(begun)]
