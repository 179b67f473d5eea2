"""RabbitMQ as a managed process, for scripts and tests: no systemd, no root, no plugin.

It listens on nothing but its AMQP port on loopback: the Erlang node has a name, as RabbitMQ needs, but
neither epmd nor a port for other nodes and rabbitmqctl. So any number of brokers run side by side. Debian's
wrapper scripts are not used: they work in /usr only.
"""

import base64
import hashlib
import json
import os
import secrets
import shutil
import socket
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from legacy_queue.local_processes.managed_process import HOST, Busy, Command, ManagedProcess, Ports
from legacy_queue.private_folder import write_private

_USER = "guest"
_NODE = "rabbit@localhost"  # names the folders of its data: never to be changed
_FLAGS = (
    *("-boot", "start_sasl"),
    *("-noshell", "-eval", "spawn(fun() -> io:get_line(user, ''), init:stop() end)"),  # at the owner's end
    *("-sname", _NODE, "-dist_listen", "false", "-start_epmd", "false"),
    *("-erl_epmd_port", "1"),  # RabbitMQ takes this for its port; else it waits 30 s for epmd
    *("-syslog", "logger", "[]", "-syslog", "syslog_error_logger", "false"),
    *("+S", "1:1", "+A", "1"),  # threads
    *("+sbwt", "none", "+sbwtdcpu", "none", "+sbwtdio", "none"),  # no busy waiting
    *("-s", "rabbit", "boot"),
)


class RabbitMQUnavailable(Exception):
    """RabbitMQ cannot serve; the message says why and what cures it, in a sentence for a person."""


class RabbitMQ(ManagedProcess):
    """A RabbitMQ with its data in ``folder``: durable queues and messages survive a restart.

    Its only user has a random password, which stays the same for the folder. The program is the machine's,
    else the one in ``home``. ``settings`` are lines for rabbitmq.conf.
    """

    NAME = "RabbitMQ"
    UNAVAILABLE = RabbitMQUnavailable

    def __init__(
        self,
        folder: Path,
        home: Path,
        *,
        settings: Mapping[str, str] | None = None,
        timeout: timedelta = timedelta(seconds=60),
    ) -> None:
        super().__init__(folder, timeout)
        self._home, self._settings = home, settings or {}
        self._password = ""

    @property
    def url(self) -> str:
        """Its URL, after the start. RabbitMQ lets its default user in on loopback only."""
        return f"amqp://{_USER}:{self._password}@{HOST}:{self._ports['amqp']}/%2F"

    def _command(self, ports: Ports) -> Command:
        root, erlang, rabbitmq = _find(self._home)
        folder = self._folder.resolve()
        self._password = _kept_password(folder / "password")
        write_private(folder / "definitions.json", json.dumps(_definitions(self._password)))
        settings = {
            "load_definitions": str(folder / "definitions.json"),
            "listeners.tcp.1": f"{HOST}:{ports['amqp']}",
            "log.connection.level": "error",  # else two lines for each connection
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
            # without these it reads the files of the machine's broker
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(folder / "advanced.config"),
            "RABBITMQ_CONF_ENV_FILE": str(folder / "rabbitmq-env.conf"),
        }
        if root != Path("/"):
            libraries = [path for lib in ("usr/lib", "lib") for path in root.glob(f"{lib}/*-linux-*")]
            environment["LD_LIBRARY_PATH"] = ":".join(map(str, libraries))
        return [str(erlang), *_FLAGS], environment

    def _free_ports(self) -> Ports:
        with socket.create_server((HOST, 0)) as free:
            return {"amqp": free.getsockname()[1]}

    def _listening(self, output: str, ports: Ports) -> Ports | None:
        if "eaddrinuse" in output:
            raise Busy(f"{HOST}:{ports['amqp']}")
        return ports if "Server startup complete" in output else None


def _kept_password(path: Path) -> str:
    if not path.exists():
        write_private(path, secrets.token_hex(24))
    return path.read_text()


def _definitions(password: str) -> dict[str, Any]:
    """The user of the broker, whose password is set at each start: an earlier version left it the public one.

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
    """Link RabbitMQ's own parts into ``parts``: the start with all plugins takes two seconds longer."""
    shutil.rmtree(parts, ignore_errors=True)
    parts.mkdir(0o700)
    for path in plugins.iterdir():
        if not path.name.startswith("rabbitmq_") or path.name.startswith("rabbitmq_prelaunch"):
            (parts / path.name).symlink_to(path)


def _find(home: Path) -> tuple[Path, Path, Path]:
    """The root, Erlang's erlexec and RabbitMQ's folder, as in Debian's packages."""
    for root in (Path("/"), home.resolve()):
        erlang = sorted(root.glob("usr/lib/erlang/erts-*/bin/erlexec"))
        rabbitmq = sorted(root.glob("usr/lib/rabbitmq/lib/rabbitmq_server-*"))
        if erlang and rabbitmq:
            return root, erlang[-1], rabbitmq[-1]
    raise RabbitMQUnavailable(
        f"RabbitMQ is neither installed in /usr/lib/rabbitmq, with Erlang in /usr/lib/erlang, nor in {home}: "
        "scripts/up --rabbitmq fetches it, and so does `apt-get install rabbitmq-server`."
    )
