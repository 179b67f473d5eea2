"""Runs RabbitMQ as a child process, for scripts and tests. It needs no systemd, no root and no plugins.

``python -P tests/rabbitmq.py FOLDER COMMAND...`` runs a command with a broker for the events.

It listens only on its AMQP port on loopback. The Erlang node has a name, which RabbitMQ needs, but there is
no epmd, and no port for other nodes and rabbitmqctl. So any number of brokers can run at the same time.
Debian's wrapper scripts work only in /usr, so they are not used.
"""

import base64
import hashlib
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import click

from legacy_queue.private_folder import make_private, write_private
from legacy_queue.server.signals import handle_stop, interrupt_on_signal

HOME = Path(__file__).resolve().parents[1] / ".rabbitmq"  # scripts/setup.sh unpacks Debian's packages here
_HOST = "127.0.0.1"
_USER = "guest"
_NODE = "rabbit@localhost"  # the folders of its data have this name, so it must never change
_FLAGS = (
    *("-boot", "start_sasl"),
    # ends when its owner ends
    *("-noshell", "-eval", "spawn(fun() -> io:get_line(user, ''), init:stop() end)"),
    *("-sname", _NODE, "-dist_listen", "false", "-start_epmd", "false"),
    *("-erl_epmd_port", "1"),  # without this port, RabbitMQ waits 30 s for epmd
    *("-syslog", "logger", "[]", "-syslog", "syslog_error_logger", "false"),
    *("+S", "1:1", "+A", "1"),  # few threads
    *("+sbwt", "none", "+sbwtdcpu", "none", "+sbwtdio", "none"),  # no busy waiting
    *("-s", "rabbit", "boot"),
)


class RabbitMQUnavailable(Exception):
    """RabbitMQ cannot serve. The message says why, and what to do."""


class RabbitMQ:
    """A RabbitMQ with its data in ``folder``. Durable queues, their messages and its port survive a restart.

    Its only user has a random password, which is kept in the folder. ``settings`` are lines for
    rabbitmq.conf. When its owner ends, its standard input ends, and then it stops.
    """

    def __init__(self, folder: Path, *, settings: Mapping[str, str] | None = None) -> None:
        self._folder = folder.resolve()
        self._settings = settings or {}
        self._process: subprocess.Popen[bytes] | None = None
        make_private(folder)
        self._port = _free_port(int(_kept(folder / "port", "0")))
        write_private(folder / "port", str(self._port))
        self._password = _kept(folder / "password", secrets.token_hex(24))

    @property
    def url(self) -> str:
        """The URL of the broker. RabbitMQ accepts its default user only on loopback."""
        return f"amqp://{_USER}:{self._password}@{_HOST}:{self._port}/%2F"

    def start(self) -> Self:
        """Start it, and return when it accepts connections. Raises RabbitMQUnavailable."""
        log = self._folder / "rabbitmq.log"
        words, environment = self._command()
        with open(log, "wb") as output:
            self._process = subprocess.Popen(
                words,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )
        while "Server startup complete" not in log.read_text(errors="replace"):
            if self._process.poll() is not None:
                raise RabbitMQUnavailable(f"RabbitMQ ended while it started, see {log}.")
            time.sleep(0.02)
        return self

    def stop(self) -> None:
        """Stop it. Repeating this is safe."""
        if self._process and self._process.stdin:
            self._process.terminate()
            self._process.stdin.close()
            self._process.wait()
        self._process = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _command(self) -> tuple[list[str], dict[str, str]]:
        erlang, rabbitmq = _find()
        libraries = [str(path) for lib in ("usr/lib", "lib") for path in HOME.glob(f"{lib}/*-linux-*")]
        folder = self._folder
        write_private(folder / "definitions.json", json.dumps(_definitions(self._password)))
        settings = {
            "load_definitions": str(folder / "definitions.json"),
            "listeners.tcp.1": f"{_HOST}:{self._port}",
            "log.connection.level": "error",  # otherwise it logs two lines for each connection
            **self._settings,
        }
        write_private(folder / "rabbitmq.conf", "".join(f"{k} = {v}\n" for k, v in settings.items()))
        write_private(folder / "enabled_plugins", "[].\n")
        _link_parts(rabbitmq / "plugins", folder / "parts")
        environment = {
            "PATH": os.environ.get("PATH", os.defpath),
            "LANG": "C.UTF-8",
            "HOME": str(folder),
            "ROOTDIR": str(erlang.parents[2]),
            "BINDIR": str(erlang.parent),
            "LD_LIBRARY_PATH": ":".join(libraries),
            "EMU": "beam",
            "PROGNAME": "erl",
            "ERL_LIBS": str(folder / "parts"),
            "ERL_CRASH_DUMP_SECONDS": "0",
            "RABBITMQ_HOME": str(rabbitmq),
            "RABBITMQ_NODENAME": _NODE,
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_LOG_BASE": str(folder),
            "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
            "RABBITMQ_PLUGINS_DIR": str(folder / "parts"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
            # without these, it reads the files of the machine's own broker
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(folder / "advanced.config"),
            "RABBITMQ_CONF_ENV_FILE": str(folder / "rabbitmq-env.conf"),
        }
        return [str(erlang), *_FLAGS], environment


def _free_port(wanted: int) -> int:
    """The wanted port, or another if it is taken."""
    with suppress(OSError), socket.create_server((_HOST, wanted)) as free:
        return int(free.getsockname()[1])
    return _free_port(0)


def _kept(path: Path, new: str) -> str:
    if not path.exists():
        write_private(path, new)
    return path.read_text()


def _definitions(password: str) -> dict[str, Any]:
    """The definition of the broker's user. The password is set at each start.

    Source: RabbitMQ's "Passwords", "This is the algorithm".
    """
    salt = secrets.token_bytes(4)
    digest = base64.b64encode(salt + hashlib.sha256(salt + password.encode()).digest()).decode()
    hashed = {"password_hash": digest, "hashing_algorithm": "rabbit_password_hashing_sha256"}
    everything = dict.fromkeys(("configure", "write", "read"), ".*")
    return {
        "users": [{"name": _USER, **hashed, "tags": "administrator"}],
        "vhosts": [{"name": "/"}],
        "permissions": [{"user": _USER, "vhost": "/", **everything}],
    }


def _link_parts(plugins: Path, parts: Path) -> None:
    """Link RabbitMQ's own parts into ``parts``. With all plugins, a start would take two seconds longer."""
    shutil.rmtree(parts, ignore_errors=True)
    parts.mkdir(0o700)
    for path in plugins.iterdir():
        if not path.name.startswith("rabbitmq_") or path.name.startswith("rabbitmq_prelaunch"):
            (parts / path.name).symlink_to(path)


def _find() -> tuple[Path, Path]:
    """The paths of Erlang's erlexec and of RabbitMQ's folder."""
    erlang = sorted(HOME.glob("usr/lib/erlang/erts-*/bin/erlexec"))
    rabbitmq = sorted(HOME.glob("usr/lib/rabbitmq/lib/rabbitmq_server-*"))
    if erlang and rabbitmq:
        return erlang[-1], rabbitmq[-1]
    raise RabbitMQUnavailable(f"There is no RabbitMQ in {HOME}: scripts/install --services fetches it.")


def _main(folder: str, *words: str) -> int:
    """Run the command with a broker, then stop the broker. Returns the command's exit code."""
    interrupt_on_signal()
    with RabbitMQ(Path(folder)) as broker:
        click.echo(f"RabbitMQ publishes the events on {broker.url} (topic exchanges).\n")
        # the URL is in the environment, because other users can read a command line
        command = subprocess.Popen(words, env={**os.environ, "LEGACY_QUEUE_AMQP_URL": broker.url})
        handle_stop(lambda number, _: command.send_signal(number))
        return command.wait()


if __name__ == "__main__":
    try:
        sys.exit(_main(*sys.argv[1:]))
    except RabbitMQUnavailable as unavailable:
        sys.exit(f"Error: {unavailable}")
    except KeyboardInterrupt:
        sys.exit(130)
