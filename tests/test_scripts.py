"""What the scripts of the tree share: scripts/setup.sh."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes

SETUP = Path(__file__).parents[1] / "scripts/setup.sh"
# ends by no signal of a terminal, as an npm whose reader has ended; its child has the same output
INSTALLS = """
. "$1"
install() {
    trap '' INT TERM HUP
    sleep 600 &
    echo begun
    wait
}
alone install || echo failed
echo went on
"""


def test_ctrl_c_ends_an_installation_at_once_with_all_that_it_has_started(tmp_path: Path) -> None:
    functions = tmp_path / "scripts/setup.sh"
    functions.parent.mkdir()
    functions.write_text(SETUP.read_text().partition("\nalone install ")[0])
    command = ["bash", "-euo", "pipefail", "-c", INSTALLS, "bash", str(functions)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as script:
        assert script.stdout
        assert script.stdout.readline() == "begun\n"
        os.killpg(script.pid, signal.SIGINT)  # as a terminal does
        output, errors = script.communicate()  # until no process has them
    assert (output, errors) == ("", "Interrupted. The next start installs what is not complete.\n")
    assert script.returncode == 130
