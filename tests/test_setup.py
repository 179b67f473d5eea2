"""scripts/setup.sh, of which scripts/up is made."""

import subprocess
from pathlib import Path

import pytest

FUNCTIONS = '. <(sed "/^alone install/d" "$0"); '
SETUP = Path(__file__).parents[1] / "scripts/setup.sh"
HINT = "Is this machine connected"


def run(script: str, argument: Path) -> subprocess.CompletedProcess[str]:
    """The script after the functions of SETUP; ``$1`` is the argument."""
    words = ["bash", "-euo", "pipefail", "-c", FUNCTIONS + script, str(SETUP), str(argument)]
    env = {"without_azurite": "yes", "PATH": "/usr/bin:/bin"}
    return subprocess.run(words, env=env, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("log", "is_hinted"),
    [
        ("WARNING: Retrying after connection broken by 'NewConnectionError(... Connection refused)'", True),
        (
            "WARNING: Retrying after connection broken by 'ProxyError(... connection failed: 403)'",
            True,
        ),
        ("npm error code EAI_AGAIN\nnpm error network request to https://example.com/x failed", True),
        ("      error: command 'x86_64-linux-gnu-gcc' failed: No such file or directory", False),
        ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device", False),
        ("npm error code EBADENGINE", False),
    ],
)
def test_a_failed_installation_asks_for_the_network_only_if_that_is_the_cause(
    tmp_path: Path, log: str, is_hinted: bool
) -> None:
    (tmp_path / "log").write_text(log)
    done = run('fail_install pip it "$1"', tmp_path / "log")
    assert done.returncode == 1
    assert log.splitlines()[-1].strip() in done.stderr
    assert (HINT in done.stderr) is is_hinted


def test_where_podman_cannot_run_the_installation_says_so_and_goes_on(tmp_path: Path) -> None:
    (tmp_path / "tests/containers").mkdir(parents=True)
    (tmp_path / "tests/containers/podman").touch()
    machine = 'root="$1"; apt_install() { return 0; }; id() { echo 0; }; type() { return 0; };'
    done = run(f"{machine} make_debian_image() {{ return 1; }}; install_podman; echo goes on", tmp_path)
    assert (done.returncode, done.stdout) == (0, "goes on\n"), done.stderr
    assert "the tests of the image will fail" in done.stderr
    assert not (tmp_path / ".containers/.installed").exists()
