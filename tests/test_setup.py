"""scripts/setup.sh: where packages come from, and what it needs when they are already installed."""

import os
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes

SETUP = Path(__file__).parents[1] / "scripts/setup.sh"


@pytest.mark.parametrize(
    ("variables", "index"),
    [
        ({}, "http://of.file/simple"),
        ({"PIP_INDEX_URL": "http://of.pip/simple"}, "http://of.pip/simple"),
        ({"UV_DEFAULT_INDEX": "http://of.uv/simple"}, "http://of.uv/simple"),
    ],
)
def test_packages_come_from_the_index_that_pip_is_configured_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], index: str
) -> None:
    file = tmp_path / "pip.conf"
    file.write_text("[global]\nindex-url = http://of.file/simple\n")
    for name in ("PIP_INDEX_URL", "UV_DEFAULT_INDEX"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"PIP_CONFIG_FILE": str(file), **variables}.items():
        monkeypatch.setenv(name, value)
    script = f'set -euo pipefail; . "{SETUP}"; use_index_of_pip; echo "$UV_DEFAULT_INDEX"'
    assert subprocess.check_output(["bash", "-c", script], text=True).strip() == index


def test_if_everything_is_installed_setup_needs_no_index_and_no_home_folder() -> None:
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": "/proc/none",
        "UV_DEFAULT_INDEX": "http://127.0.0.1:9/simple",
    }
    printed = subprocess.check_output(
        ["bash", "-euc", f'. "{SETUP}" develop'], env=environ, stderr=subprocess.STDOUT
    )
    assert not printed
