"""scripts/setup.sh, of which scripts/up is made."""

import subprocess
from pathlib import Path

import pytest

SETUP = Path(__file__).parents[1] / "scripts/setup.sh"
HINT = "Is this machine connected"


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
    script = '. <(sed "/^alone install/d" "$0"); fail_install pip it "$1"'
    words = ["bash", "-c", script, str(SETUP), str(tmp_path / "log")]
    env = {"without_azurite": "yes", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert log.splitlines()[-1].strip() in done.stderr
    assert (HINT in done.stderr) is is_hinted
