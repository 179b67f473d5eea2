"""A shell in a scratch folder. Its variables, current folder and jobs are kept until the page ends."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from tests.docs.page import RUN, Step, pattern
from tests.process_guard import processes_with
from tests.system.processes import LONG, environment, wait_until

_COMMAND = 10 * LONG  # seconds; some commands take almost a minute on an idle machine

ROOT = Path(__file__).parents[2]
CLIENTS = ROOT / "tests" / "clients"
PYTHONS = (Path(sys.prefix), CLIENTS / ".venv")
_PORT = re.compile(r"((?:127\.0\.0\.1|localhost|0\.0\.0\.0):|--[a-z-]*port[ =]|_PORT=|\bport = )(\d{4,5})\b")
_CANDIDATES = iter(range(20_000 + os.getpid() % 12_000, 32_768))  # the system never gives these for port 0


def free_port() -> int:
    """A port that no other test in this process gets. Tests in other processes hardly ever get it."""
    for port in _CANDIDATES:
        with socket.socket() as tried, suppress(OSError):
            tried.bind(("127.0.0.1", port))
            return port
    raise OSError("no port is free")


class Terminal:
    """The terminal of a page.

    ``ports`` maps the page's ports to those of this run, because many pages are tested at the same time.
    """

    def __init__(self, folder: Path, env: Mapping[str, str], ports: dict[str, int]) -> None:
        self._folder = folder
        self._ports = ports
        self._steps = 0
        # the process group of each background command, by its output file
        self._background: dict[Path, int] = {}
        self._mark = str(uuid.uuid4())  # every process that the page starts has this in its environment
        scratch = folder / "scratch"
        (scratch / "scripts").mkdir(parents=True)
        for script in (ROOT / "scripts").iterdir():
            (scratch / "scripts" / script.name).write_text(f'#!/bin/sh\nexec "{script}" "$@"\n')
            (scratch / "scripts" / script.name).chmod(0o755)
        own = {
            "HOME": str(scratch),
            "LEGACY_QUEUE_PORT": str(self._port("8080")),
            "LEGACY_QUEUE_DATA_DIR": str(scratch / ".legacy-queue"),
            "NODE_PATH": str(folder / "node_modules"),
            "TEST_PAGE": self._mark,
        }
        self._shell = subprocess.Popen(
            ["bash", "--norc"],
            cwd=scratch,
            env=environment(**{**own, **env}),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )

    def take(self, step: Step, last: Path | None) -> Path | None:
        """Carry out a step. Returns the file with its output, or ``last`` if it prints nothing."""
        text = _PORT.sub(lambda match: match[1] + str(self._port(match[2])), step.text)
        if step.mark == "stop":
            self._stop()
        elif step.mark.startswith("file "):
            (self._folder / "scratch" / step.mark.removeprefix("file ")).write_text(text)
        elif step.is_output:
            assert last
            self._compare(step.line, text, last)
        elif not step.is_run:
            self._use(text)
        elif step.mark == "sample":
            pass
        elif step.language == "toml":
            settings = self._folder / "settings.toml"
            settings.write_text(text)
            self._run(step, f"legacy-queue config --config {settings}")
        elif step.language in RUN:
            return self._run(step, text)
        return last

    def _use(self, text: str) -> None:
        """Make the versions available that the page would install. The tests have them installed."""
        for name, version in re.findall(r"pip install ([\w-]+)==(\S+)", text):
            installed = f"lib/python*/site-packages/{name}-{version}.dist-info"
            [home] = [folder for folder in PYTHONS if [*folder.glob(installed)]]
            self._send(f'PATH="{home / "bin"}:$PATH"')
        for name, version in re.findall(r"npm install ([\w-]+)@(\S+)", text):
            module = CLIENTS / "node_modules" / f"{name}-{version.partition('.')[0]}"
            assert json.loads((module / "package.json").read_text())["version"] == version
            (self._folder / "node_modules").mkdir(exist_ok=True)
            (self._folder / "node_modules" / name).symlink_to(module)

    def _run(self, step: Step, text: str) -> Path:
        self._steps += 1
        name = self._folder / str(self._steps)
        script, output, ended = (name.with_suffix(suffix) for suffix in (".block", ".out", ".ended"))
        script.write_text(text)
        take = f". {script}" if step.language in ("sh", "toml") else f"{RUN[step.language]} {script}"
        to_file = f">{output} 2>&1 </dev/null"
        done = f">{ended}.new; mv {ended}.new {ended}"
        expected = 0
        if step.mark == "background":
            self._send(f"setsid bash -c 'echo $$ {done}; . {script}' {to_file} &")
        elif step.mark.startswith("exit "):
            expected = int(step.mark.removeprefix("exit "))
            self._send(f"{take} {to_file}; echo $? {done}")
        else:  # if a command fails, the shell ends
            self._send(f"set -e; {take} {to_file}\nset +e; echo 0 {done}")
        wait_until(lambda: ended.exists() or self._shell.poll() is not None, _COMMAND)
        said = output.read_text() if output.exists() else ""
        assert ended.exists(), f"line {step.line}: exit code {self._shell.returncode} of\n{text}\n{said}"
        code = int(ended.read_text())
        if step.mark == "background":
            self._background[output] = code
        else:
            assert code == expected, f"line {step.line}: exit code {code} of\n{text}\n{said}"
        return output

    def _send(self, line: str) -> None:
        assert self._shell.stdin
        self._shell.stdin.write(f"{line}\n")
        self._shell.stdin.flush()

    def _compare(self, line: int, expected: str, output: Path) -> None:
        """Compare an output with the page. A background command may print more, and later."""

        def matches() -> bool:
            said = f"{output.read_text().strip()}\n"
            return bool(matching.search(said) if output in self._background else matching.fullmatch(said))

        matching = pattern(expected)
        if output in self._background:
            with suppress(TimeoutError):
                wait_until(lambda: matches() or not self._is_alive(self._background[output]), _COMMAND)
        assert matches(), f"line {line}: expected\n{expected}\nbut it printed\n{output.read_text()}"

    def _port(self, number: str) -> int:
        if number not in self._ports:
            self._ports[number] = free_port()
        return self._ports[number]

    def _stop(self) -> None:
        _, group = self._background.popitem()
        with suppress(ProcessLookupError):
            os.killpg(group, signal.SIGTERM)
        wait_until(lambda: not self._is_alive(group))

    def _is_alive(self, group: int) -> bool:
        return group in self._started().values()

    def close(self) -> None:
        """Stop everything that the page started."""
        try:
            while self._background:
                self._stop()
        finally:
            for pid in self._started():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            assert self._shell.stdin
            self._shell.stdin.close()
            self._shell.wait(LONG)

    def _started(self) -> dict[int, int]:
        """The running processes of the page, and their process groups."""
        found = {}
        for pid in processes_with("environ", self._mark.encode()):
            with suppress(ProcessLookupError):
                found[pid] = os.getpgid(pid)
        return found
