"""The commands of ``legacy-queue``, one on a line: where each is defined, and its line in the help.

This module imports nothing of the commands, so that ``legacy-queue --help`` is quick, and a command can
handle signals from its first moment.
"""

from typing import NamedTuple


class CommandRow(NamedTuple):
    """``place`` is a module of this package and the name of the command in it.

    A command that ``runs_until_signal`` skips the interpreter's cleanup at its end, because that takes long.
    """

    place: str
    text: str
    runs_until_signal: bool = False


SECTIONS = {
    "Run a queue": {
        "up": CommandRow("up:up", "Run a queue to try things with; --demo shows a task's life.", True),
        "serve": CommandRow("serve:serve", "Run a queue as a service.", True),
        "test": CommandRow("run_tests:test", "Run a test suite, or any command, with a queue of its own."),
    },
    "Use a queue": {
        "create-task": CommandRow("create_task:create_task", "Create a task that runs a command."),
        "env": CommandRow("config:env", "Print environment variables that lead clients to the queue."),
        "worker": CommandRow("worker:worker", "Run the sample worker.", True),
        "cancel": CommandRow("inspect:cancel", "Cancel a task."),
        "rerun": CommandRow("inspect:rerun", "Run a resolved task again."),
        "log": CommandRow("inspect:log", "Print the log of a task."),
        "events": CommandRow("events:events", "Print events about tasks as they happen.", True),
        "migration": CommandRow("migration:migration", "Report which pools can move to a newer protocol."),
    },
    "Ask a queue why": {
        "status": CommandRow("inspect:status", "Say why a task is waiting, and what happened to it."),
        "tasks": CommandRow("inspect:tasks", "List tasks."),
        "group": CommandRow("inspect:group", "List the tasks of a task group."),
        "pools": CommandRow("inspect:pools", "List pools: their tasks, and who asks for work."),
        "workers": CommandRow("inspect:workers", "List workers: their last call, quarantine and task."),
        "peek": CommandRow("inspect:peek", "Print the messages in a pool's Azure queues."),
        "open": CommandRow("inspect:open_page", "Print a link that opens the queue's web page."),
    },
    "Test with a queue (needs --control, which up turns on)": {
        "requests": CommandRow("control:requests", "Print the last requests and their answers.", True),
        "clock": CommandRow("control:clock", "Print the queue's clock, move it forward, or freeze it."),
        "fault": CommandRow("control:fault", "Make requests fail."),
        "reset": CommandRow("control:reset", "Empty the queue without a restart."),
        "conform": CommandRow("conform:conform", "Check whether a worker follows the protocol."),
    },
    "Settings and files": {
        "config": CommandRow("config:config", "Print the settings in force, with secrets masked."),
        "queues": CommandRow("config:queues", "Print the names of the Azure queues behind a pool."),
        "backup": CommandRow("backup:backup", "Copy the embedded storage into a new data directory."),
        "ca": CommandRow("ca:ca", "Print the certificate of --tls auto, and how to trust it."),
    },
}
COMMANDS = {name: row for section in SECTIONS.values() for name, row in section.items()}
