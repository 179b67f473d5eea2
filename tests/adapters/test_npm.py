"""Installations by npm: with the real npm where its behaviour matters."""

import io
import json
import os
import socket
import subprocess
import sys
import tarfile
import threading
from pathlib import Path
from typing import IO

import pytest
from filelock import lock_descriptor

from legacy_queue.adapters import npm
from legacy_queue.adapters.npm import NodeUnavailable, install
from tests.system.processes import LONG, wait_until


class CutOff(Exception):
    """The process has to end while npm works."""


def a_manifest(folder: Path, packages: dict[str, object]) -> Path:
    """Pins these packages."""
    folder.mkdir()
    names = {name.removeprefix("node_modules/"): "*" for name in packages}
    (folder / "package.json").write_text(json.dumps({"name": "root", "dependencies": names}))
    root = {"": {"name": "root", "dependencies": names}}
    lock = {"name": "root", "lockfileVersion": 3, "requires": True, "packages": {**root, **packages}}
    (folder / "package-lock.json").write_text(json.dumps(lock))
    return folder


def a_package(path: Path) -> dict[str, object]:
    """As a lock pins it, in a file."""
    manifest = json.dumps({"name": "small", "version": "1.0.0"}).encode()
    with tarfile.open(path, "w:gz") as tar:
        entry = tarfile.TarInfo("package/package.json")
        entry.size = len(manifest)
        tar.addfile(entry, io.BytesIO(manifest))
    return {"version": "1.0.0", "resolved": f"file:{path}"}


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    """A manifest that needs no network."""
    return a_manifest(tmp_path / "manifest", {"node_modules/small": a_package(tmp_path / "small.tgz")})


@pytest.fixture
def from_a_registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A manifest that needs a network: npm's cache is empty."""
    monkeypatch.setenv("npm_config_cache", str(tmp_path / "npm-cache"))
    return a_manifest(tmp_path / "manifest", {"node_modules/small": {"version": "1.0.0"}})


def is_free(lock: IO[bytes]) -> bool:
    return lock_descriptor(lock.fileno(), blocking=False)


def only_on_path(folder: Path, monkeypatch: pytest.MonkeyPatch, **scripts: str) -> None:
    """PATH has only these scripts, and there is no Node.js in a wheel."""
    folder.mkdir()
    for name, script in scripts.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(sys, "path", [])


def test_the_folder_has_all_pinned_packages_and_a_log_and_nothing_else(
    tmp_path: Path, manifest: Path
) -> None:
    seen: list[int] = []
    install(manifest, tmp_path / "a folder", seen.append)
    assert (tmp_path / "a folder/node_modules/small/package.json").is_file()
    assert seen[-1] == npm.count_packages(manifest) == 1
    assert {path.name for path in (tmp_path / "a folder").iterdir()} == {"node_modules", "npm.log", ".lock"}


def test_an_existing_installation_is_not_installed_again(
    tmp_path: Path, manifest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(manifest, tmp_path / "folder")
    only_on_path(tmp_path / "bin", monkeypatch)
    install(manifest, tmp_path / "folder")


def test_one_of_several_concurrent_callers_installs_and_the_others_wait(
    tmp_path: Path, manifest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    npm_script = f"echo >>{tmp_path}/runs; until [ -e {tmp_path}/go ]; do :; done; /bin/mkdir node_modules"
    only_on_path(tmp_path / "bin", monkeypatch, node="echo v24.1.0", npm=npm_script)
    begun = set()
    threads = [
        threading.Thread(
            target=install,
            args=(manifest, tmp_path / "folder", lambda _done: begun.add(threading.get_ident())),
        )
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(begun) == 2)
    (tmp_path / "go").touch()
    for thread in threads:
        thread.join(LONG)
    assert (tmp_path / "folder/node_modules").is_dir()
    assert (tmp_path / "runs").read_text() == "\n"


def test_an_interrupted_installation_does_not_look_complete_and_the_next_succeeds(
    tmp_path: Path, manifest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut_off(done: int) -> None:
        if done:
            raise CutOff

    script = (
        "/bin/mkdir -p node_modules/small; echo >node_modules/small/package.json; exec /bin/sleep infinity"
    )
    with monkeypatch.context() as patched:
        only_on_path(tmp_path / "bin", patched, node="echo v24.1.0", npm=script)
        with pytest.raises(CutOff):
            install(manifest, tmp_path / "folder", cut_off)
    assert not (tmp_path / "folder/node_modules").exists()
    install(manifest, tmp_path / "folder")
    assert json.loads((tmp_path / "folder/node_modules/small/package.json").read_text())["name"] == "small"


def test_npm_ends_with_the_process_that_started_it(
    from_a_registry: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(LONG)
        monkeypatch.setenv("npm_config_registry", f"http://127.0.0.1:{silent.getsockname()[1]}")
        command = [sys.executable, "-m", "legacy_queue.adapters.npm", str(from_a_registry)]
        with subprocess.Popen(command) as process:
            asked, _ = silent.accept()  # npm is at work, and waits for an answer
            process.kill()
        with asked, open(from_a_registry / ".lock", "ab") as lock:
            wait_until(lambda: is_free(lock))  # npm holds it too
    assert not (from_a_registry / "node_modules").exists()


def test_a_missing_network_is_reported_in_one_sentence_with_the_cause_first(
    tmp_path: Path, from_a_registry: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    monkeypatch.setenv("npm_config_registry", f"http://{address}")
    with pytest.raises(NodeUnavailable) as refused:
        install(from_a_registry, tmp_path / "folder")
    assert str(refused.value) == (
        f"{address} cannot be reached (ECONNREFUSED): "
        "connect this machine to the network, or set HTTPS_PROXY to a proxy, and try again. "
        f"npm could not install into {tmp_path}/folder; it said more in {tmp_path}/folder/npm.log."
    )
    assert not (tmp_path / "folder/node_modules").exists()


def test_a_node_without_npm_is_reported_in_one_sentence(
    tmp_path: Path, manifest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only_on_path(tmp_path / "bin", monkeypatch, node="echo v24.1.0")
    with pytest.raises(NodeUnavailable) as refused:
        install(manifest, tmp_path / "folder")
    assert str(refused.value) == (
        f"There is no npm beside {tmp_path}/bin/node, which installs Azurite: "
        "`pip install 'legacy-queue[node]'` brings it. --storage memory needs none."
    )


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path, manifest: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(
        NodeUnavailable, match=r"^\S+/file/folder cannot be used: Not a directory\. .* --azurite-dir"
    ):
        install(manifest, tmp_path / "file/folder")


def test_node_options_of_the_environment_apply_to_npm(
    tmp_path: Path, manifest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "loaded.js").write_text(f"require('fs').writeFileSync('{tmp_path}/was-loaded', '')")
    monkeypatch.setenv("NODE_OPTIONS", f"--require={tmp_path}/loaded.js")
    install(manifest, tmp_path / "folder")
    assert (tmp_path / "was-loaded").exists()
    assert os.environ["NODE_OPTIONS"] == f"--require={tmp_path}/loaded.js"
