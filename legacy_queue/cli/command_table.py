"""Each command of ``legacy-queue``, on one line: where it is, and what the help says of it.

This module imports nothing: ``legacy-queue --help`` is quick, and a command can handle signals at once.
"""

from typing import NamedTuple


class CommandRow(NamedTuple):
    """``place`` is a module beside this one, and the name of the command in it.

    A command that ``runs_until_signal`` ends without the interpreter's cleanup, which takes long.
    """

    place: str
    text: str
    runs_until_signal: bool = False


SECTIONS = {
    "Run a queue": {
        "up": CommandRow("up:up", "Run it and print commands to try, or show the life of a task.", True),
        "serve": CommandRow("serve:serve", "Run the HTTP server.", True),
        "test": CommandRow("run_tests:test", "Run a test suite, or any command, with a new queue."),
    },
    "Use a queue": {
        "create-task": CommandRow("create_task:create_task", "Create a task that runs a command."),
        "env": CommandRow("config:env", "Print the variables with which clients find it."),
        "worker": CommandRow("worker:worker", "Run the sample worker.", True),
        "cancel": CommandRow("inspect:cancel", "Cancel a task."),
        "rerun": CommandRow("inspect:rerun", "Run a resolved task again."),
        "log": CommandRow("inspect:log", "Print the log of a task."),
        "events": CommandRow("events:events", "Print the events of tasks as they happen.", True),
        "migration": CommandRow("migration:migration", "Report which workers speak which protocol."),
    },
    "Ask a queue why": {
        "status": CommandRow("inspect:status", "Say what a task waits for, and what happened to it."),
        "tasks": CommandRow("inspect:tasks", "List tasks."),
        "group": CommandRow("inspect:group", "List the tasks of a task group."),
        "pools": CommandRow("inspect:pools", "List pools: their tasks, and who asks for work."),
        "workers": CommandRow("inspect:workers", "List workers: their last call and quarantine."),
        "peek": CommandRow("inspect:peek", "Print the messages of a pool without dequeuing."),
        "open": CommandRow("inspect:open_page", "Print a link to the queue's page, for a browser."),
    },
    "Test with a queue that runs with --control, as up does": {
        "requests": CommandRow("control:requests", "Print its last requests and their answers.", True),
        "clock": CommandRow("control:clock", "Print its clock, or move it forward."),
        "fault": CommandRow("control:fault", "Cause faults in requests."),
        "reset": CommandRow("control:reset", "Empty it, without a restart."),
        "conform": CommandRow("conform:conform", "Judge whether a worker follows the protocol."),
    },
    "Look at settings and files": {
        "config": CommandRow("config:config", "Print the settings in force, with secrets masked."),
        "queues": CommandRow("config:queues", "Print the names of the Azure queues behind a pool."),
        "backup": CommandRow("backup:backup", "Copy the embedded storage into a new data directory."),
        "ca": CommandRow("ca:ca", "Print the path of --tls auto's authority, and how to trust it."),
    },
}
COMMANDS = {name: row for section in SECTIONS.values() for name, row in section.items()}
