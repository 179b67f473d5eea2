""".github and CITATION.cff: valid against the schemas of check-jsonschema, and their commands are there.

Not shown here: that a workflow, Dependabot or a form works. They run at GitHub alone.
"""

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from legacy_queue import __version__

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
CHECKED = [
    *((path, "vendor.github-workflows") for path in WORKFLOWS),
    *((path, "custom.github-workflows-require-timeout") for path in WORKFLOWS),
    *(
        (path, "vendor.github-issue-config" if path.stem == "config" else "vendor.github-issue-forms")
        for path in sorted((ROOT / ".github/ISSUE_TEMPLATE").iterdir())
    ),
    (ROOT / ".github/dependabot.yml", "vendor.dependabot"),
    (ROOT / "CITATION.cff", "vendor.citation-file-format"),
]


def loaded(path: Path) -> dict[str, Any]:
    return dict(yaml.safe_load(path.read_text()))


def steps(path: Path) -> list[dict[str, Any]]:
    return [step for job in loaded(path)["jobs"].values() for step in job.get("steps", [])]


@pytest.mark.parametrize(("path", "schema"), CHECKED, ids=lambda value: str(getattr(value, "name", value)))
def test_a_file_is_as_its_schema_says(path: Path, schema: str) -> None:
    words = ["check-jsonschema", "--default-filetype", "yaml", "--builtin-schema", schema, str(path)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_calls_scripts_that_are_there(path: Path) -> None:
    commands = "\n".join(step["run"] for step in steps(path) if "run" in step)
    for name in re.findall(r"(?<![\w/.])(?:scripts/[\w-]+|\.ci/run)", commands):
        assert os.access(ROOT / name, os.X_OK), name


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_may_read_and_no_more_until_a_job_asks_for_it(path: Path) -> None:
    assert loaded(path)["permissions"] == {"contents": "read"}
    assert "concurrency" in loaded(path)
    for step in steps(path):
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False


def test_dependabot_looks_into_folders_that_are_there() -> None:
    for update in loaded(ROOT / ".github/dependabot.yml")["updates"]:
        for folder in update.get("directories", [update.get("directory")]):
            assert (ROOT / folder.lstrip("/")).is_dir(), folder


def test_a_release_is_of_the_version_that_its_tag_names_and_of_the_repository_that_the_package_names(
    tmp_path: Path,
) -> None:
    [command] = [
        step["run"] for step in steps(ROOT / ".github/workflows/release.yml") if step.get("id") == "what"
    ]
    (tmp_path / "legacy_queue").symlink_to(ROOT / "legacy_queue")
    (tmp_path / "setup.cfg").write_text("project_urls =\n    Source = https://example.com/legacy/queue\n")
    right = {
        "GITHUB_REF_NAME": f"v{__version__}",
        "GITHUB_SERVER_URL": "https://example.com",
        "GITHUB_REPOSITORY": "legacy/queue",
        "GITHUB_OUTPUT": str(tmp_path / "output"),
    }

    def code(**changed: str) -> int:
        env = {**os.environ, **right, **changed}
        return subprocess.run(["bash", "-e", "-c", command], cwd=tmp_path, env=env, check=False).returncode

    assert code() == 0
    expected = f"version={__version__}\nsource=https://example.com/legacy/queue\nepoch="
    assert (tmp_path / "output").read_text().startswith(expected)
    assert code(GITHUB_REF_NAME="v0") == code(GITHUB_REPOSITORY="another/queue") == 1
