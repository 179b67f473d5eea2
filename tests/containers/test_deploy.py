"""The files of the image, its services and their secrets, checked without a container."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from legacy_queue.cli.serve import serve
from legacy_queue.config import GivenSettings

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.processes


def test_the_secrets_of_a_deployment_are_private_and_stay_the_same_on_a_second_call(tmp_path: Path) -> None:
    made = []
    for _ in range(2):
        subprocess.run([ROOT / "deploy/secrets"], cwd=tmp_path, check=True, stdout=subprocess.DEVNULL)
        made.append({path.name: path.read_text() for path in (tmp_path / "secrets").iterdir()})
    assert made[0] == made[1]
    assert all(path.stat().st_mode & 0o077 == 0 for path in (tmp_path / "secrets").iterdir())


def variables(text: str) -> dict[str, str]:
    return dict(re.findall(r"(LEGACY_QUEUE_\w+)=(\S+)", text))


@pytest.mark.parametrize("name", ["server-1", "server-2", "all-in-one"])
def test_each_service_uses_a_command_and_settings_that_exist(tmp_path: Path, name: str) -> None:
    subprocess.run([ROOT / "deploy/secrets"], cwd=tmp_path, check=True, stdout=subprocess.DEVNULL)
    service = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"][name]
    command, *words = service["command"]
    assert command == "serve"
    env = variables((ROOT / "Containerfile").read_text())
    for file in service.get("env_file", []):
        env |= variables((tmp_path / file).read_text())
    for variable, value in service["environment"].items():
        env[variable] = re.sub(r"\$\{\w+:-(\w+)\}", r"\1", value)
    with CliRunner(env=env).isolation():
        settings = serve.make_context(command, words).ensure_object(GivenSettings).settings()
    assert settings.storage == ("embedded" if name == "all-in-one" else "azure")
    assert str(settings.data_dir) == "/data"
