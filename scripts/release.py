"""Makes a release and shows what it is: see scripts/release."""

import argparse
import configparser
import gzip
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import legacy_queue

ROOT = Path(__file__).parents[1]
VERSION = legacy_queue.__version__
UV = Path(sys.executable).with_name("uv")
BEGAN = time.monotonic()
# the oldest that the fixtures are for and that runs here; tests/examples runs the newest
OLDEST_PYTEST = "pytest ==7.0.1" if sys.version_info < (3, 12) else "pytest ==8.0.0"
# What runs on each Debian, which brings a Python: 3.11, 3.13, and the newest.
PROOF = {"bookworm": ".ci/run", "trixie": "scripts/release", "sid": ".ci/run"}
SHOWN: list[str] = []  # for the notes


def say(what: str) -> None:
    print(f"{time.monotonic() - BEGAN:6.1f} s  {what}", flush=True)
    SHOWN.append(what)


def run(*words: str | Path, cwd: Path = ROOT, expected: int = 0, env: Mapping[str, str] | None = None) -> str:
    """All output of the command. Another exit code than ``expected`` ends the script and shows the output."""
    # the variables of the tox around this script are not for the tox that it starts
    own = {name: value for name, value in os.environ.items() if not name.startswith("TOX_")}
    whole = {**own, **(env or {})}
    done = subprocess.run(
        words, cwd=cwd, env=whole, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=5400
    )
    if done.returncode != expected:
        sys.exit(f"{' '.join(map(str, words))} ended with {done.returncode}:\n{done.stdout}")
    return done.stdout


def files(folder: Path) -> set[str]:
    return {
        os.path.relpath(os.path.join(parent, name), folder)
        for parent, _, names in os.walk(folder, followlinks=True)
        for name in names
    }


def copy(tree: Path) -> Path:
    """Copies the files that git has or would add, and nothing that was installed or built here."""
    listed = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=ROOT)
    for name in filter(None, listed.split("\0")):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, tree / name, follow_symlinks=False)
        if not (tree / name).is_symlink():
            (tree / name).chmod(0o755 if os.access(tree / name, os.X_OK) else 0o644)
    return tree


def project_urls() -> dict[str, str]:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    return dict(line.split(" = ") for line in config["metadata"]["project_urls"].strip().splitlines())


def with_absolute_links(page: Path, text: str) -> str:
    """The page of this tree with links of Source in setup.cfg: an index of packages follows no others."""
    source = project_urls()["Source"]

    def absolute(found: re.Match[str]) -> str:
        before, path = found.groups()
        if not (ROOT / path.partition("#")[0]).exists():
            sys.exit(f"{page}: {path} does not exist")
        kind = "raw" if path.endswith((".png", ".svg")) else "blob"
        return f"{before}{source}/{kind}/v{VERSION}/{path}"

    return re.sub(r'(\]\(|src=")(?!https?:|#)([^)"]+)', absolute, text)


def build(target: Path, epoch: int) -> tuple[Path, Path]:
    """The sdist and the wheel of a copy of this tree, without when and by whom they were built."""
    tree = copy(target / "tree")
    readme = tree / "README.md"
    readme.write_text(with_absolute_links(readme, readme.read_text()))
    words = (sys.executable, "-m", "build", "--no-isolation", "--sdist", "--wheel", "--outdir", target)
    run(*words, tree, cwd=target, env={"SOURCE_DATE_EPOCH": str(epoch)})
    (sdist,), (wheel,) = target.glob("*.tar.gz"), target.glob("*.whl")
    with tarfile.open(sdist) as packed:
        members = [
            (each, packed.extractfile(each))
            for each in sorted(packed.getmembers(), key=lambda each: each.name)
        ]
        with (
            (target / "again").open("wb") as file,
            gzip.GzipFile("", "wb", 9, file, epoch) as zipped,
            tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as again,
        ):
            for member, contents in members:
                member.mtime = epoch
                member.uid = member.gid = 0
                member.uname = member.gname = ""
                member.pax_headers = {}
                again.addfile(member, contents)
    (target / "again").replace(sdist)
    return sdist, wheel


def digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def check_contents(tracked: set[str], sdist: Path, wheel: Path) -> None:
    with tarfile.open(sdist) as tar:
        packed = {name.partition("/")[2] for name in tar.getnames()}
    if missing := tracked - packed:
        sys.exit(f"{sdist.name} lacks {', '.join(sorted(missing))}: see MANIFEST.in")
    ours = {name for name in tracked if name.startswith("legacy_queue/")}
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata,) = (archive.read(name).decode() for name in names if name.endswith("/METADATA"))
    if not any(name.endswith(".dist-info/licenses/LICENSE") for name in names):
        sys.exit(f"{wheel} lacks its license")
    if packed := ours ^ {name for name in names if ".dist-info/" not in name}:
        sys.exit(f"{wheel} lacks, or has beside the package: {', '.join(sorted(packed))}")
    if "License-Expression: MPL-2.0" not in metadata:
        sys.exit(f"{wheel} lacks its license expression")


def constraints(folder: Path, *without: str) -> Path:
    """The pins of requirements/, without hashes: those hold for no file that was built here."""
    text = (ROOT / "requirements/develop.txt").read_text()
    pins = re.findall(r"^([a-z0-9_.-]+)(==.*?)(?: \\)?$", text, re.MULTILINE)
    file = folder / "constraints.txt"
    file.write_text("\n".join(f"{name}{pin}" for name, pin in pins if name not in without))
    return file


def show(wheel: Path, folder: Path) -> None:
    """The wheel alone runs a task on each storage, and names the extra that it lacks."""
    folder.mkdir()
    python, command = folder / "venv/bin/python", folder / "venv/bin/legacy-queue"
    pins = {"CC": "false", "UV_CONSTRAINT": str(constraints(folder))}  # as on a machine without a C compiler
    run(UV, "venv", "--python", sys.executable, folder / "venv", cwd=folder)
    run(UV, "pip", "install", "--python", python, wheel, cwd=folder, env=pins)
    env = {"HOME": str(folder), "PYTHONPATH": ""}
    where = run(python, "-c", "import legacy_queue; print(legacy_queue.__file__)", cwd=folder, env=env)
    if not Path(where).is_relative_to(folder):
        sys.exit(f"{wheel} is not what runs, but {where}")
    options = ("--storage=memory", "--amqp-url=amqp://h")
    said = run(command, "serve", *options, cwd=folder, expected=1, env=env)
    if "legacy-queue[amqp]" not in said:
        sys.exit(f"legacy-queue serve without the extra amqp: {said}")
    demo = ("up", "--demo", "--data-dir")
    # what uvx does
    once: tuple[str | Path, ...] = (
        UV,
        "tool",
        "run",
        "--python",
        sys.executable,
        "--from",
        wheel,
        "legacy-queue",
    )
    shown = {
        "by uvx": run(*once, *demo, "once", cwd=folder, env=env | pins),
        **{
            f"on {storage}": run(command, *demo, storage, "--storage", storage, cwd=folder, env=env)
            for storage in ("embedded", "memory", "azurite")
        },
    }
    for how, said in shown.items():
        if "is completed, run 0" not in said:
            sys.exit(f"no task was completed {how}:\n{said}")
    size = sum(file.lstat().st_size for file in (folder / "venv").rglob("*")) >> 20
    say(
        f"Python {sys.version.split()[0]}: the wheel completed a task {', '.join(shown)};"
        f" its environment is {size} MB"
    )


def show_fixture(wheel: Path, example: Path, folder: Path) -> None:
    """tox runs the tests of a project on the queue that the wheel brings."""
    folder.mkdir()
    deps = f"testenv.deps={wheel}\n{OLDEST_PYTEST}"
    words = ("run", "--conf", example, "--workdir", folder / "tox", "--override", deps)
    run(
        sys.executable,
        "-m",
        "tox",
        *words,
        cwd=example,
        env={"PIP_CONSTRAINT": str(constraints(folder, "pytest"))},
    )
    say(f"the tests of examples/tox had their queue of the wheel, with {OLDEST_PYTEST}")


def write_sbom(wheel: Path, target: Path, epoch: int) -> None:
    """What is installed of Python packages in the image: requirements/run.txt, and nothing to build with."""
    with tempfile.TemporaryDirectory() as name:
        python = Path(name) / "venv/bin/python"
        run(UV, "venv", "--python", sys.executable, python.parents[1])
        pip = (UV, "pip", "install", "--python", python, "--no-deps")
        run(*pip, "--require-hashes", "--requirement", ROOT / "requirements/run.txt")
        run(*pip, wheel)
        run(UV, "pip", "uninstall", "--python", python, "setuptools")
        project = Path(name) / "pyproject.toml"
        project.write_text(f'[project]\nname = "legacy-queue"\nversion = "{VERSION}"\nlicense = "MPL-2.0"\n')
        words = (
            "environment",
            python,
            "--pyproject",
            project,
            "--output-reproducible",
            "--output-file",
            target,
        )
        run(Path(sys.executable).with_name("cyclonedx-py"), *words, env={"SOURCE_DATE_EPOCH": str(epoch)})


def show_bounds(wheel: Path, folder: Path) -> None:
    """It runs a task with the lowest versions that it accepts, and with the newest."""
    # From setup.cfg: of what a wheel requires uv would take the newest, also with lowest-direct.
    requirements = "--requirement", ROOT / "setup.cfg", "--extra", "amqp", "--extra", "azure"
    installed = set()
    for resolution in ("lowest-direct", "highest"):
        python = folder / resolution / "bin/python"
        run(UV, "venv", "--python", sys.executable, folder / resolution)
        run(UV, "pip", "install", "--python", python, "--resolution", resolution, *requirements)
        run(UV, "pip", "install", "--python", python, "--no-deps", wheel)
        installed.add(run(UV, "pip", "freeze", "--python", python))
        said = run(python.with_name("legacy-queue"), "up", "--demo", "--data-dir", resolution, cwd=folder)
        if "is completed, run 0" not in said:
            sys.exit(f"no task was completed with the {resolution} versions:\n{said}")
    if len(installed) == 1:
        sys.exit("the lowest versions were not installed: both environments have the same")
    say("the wheel completed a task with the lowest and the newest versions of its requirements")


def audit(name: str, *words: str | Path, cwd: Path = ROOT) -> None:
    """Look for known vulnerabilities; one ends the script. The notes say where no database answered."""
    ran = subprocess.run(words, cwd=cwd, capture_output=True, text=True, timeout=600, check=False)
    try:
        said = json.loads(ran.stdout)
        found = said.get("vulnerabilities") or [
            each for each in said.get("dependencies", ()) if each.get("vulns")
        ]
        listed = said.get("dependencies", [])
        skipped = [each for each in listed if "skip_reason" in each]
        asked = "auditReportVersion" in said or (listed and not skipped)
    except ValueError:
        found, asked = [], False
    if found:
        sys.exit(f"{name} found {json.dumps(found, indent=1)}")
    say(
        f"{name}: nothing found"
        if asked
        else f"{name} could not run: no database of vulnerabilities answered"
    )


def build_image(target: Path, epoch: int) -> None:
    """Build the image twice, by podman on Debian's own packages, as the tests do."""
    sys.path.insert(0, str(ROOT))
    from tests.containers.engine import build, image_options, podman

    source = project_urls()["Source"]
    labels = {"VERSION": VERSION, "REVISION": run("git", "rev-parse", "HEAD").strip(), "SOURCE": source}
    arguments = [f"--build-arg={name}={value}" for name, value in labels.items()]
    tags = [f"localhost/legacy-queue:{VERSION}{again}" for again in ("", "-again")]
    with tempfile.TemporaryDirectory() as name:
        options = ["--no-cache", f"--timestamp={epoch}", *arguments, *image_options(Path(name))]
        for tag in tags:
            build("--tag", tag, *options, ROOT)
    layers = {podman("image", "inspect", "--format", "{{.RootFS.Layers}}", tag) for tag in tags}
    if len(layers) != 1:
        sys.exit(f"the image differs when it is built again: {layers}")
    podman("save", "--output", target, tags[0])
    size = int(podman("image", "inspect", "--format", "{{.Size}}", tags[0]))
    say(
        f"{target.name}: {size // 1_000_000} MB on a base of Debian's packages;"
        " built again, its layers are the same"
    )


def prove() -> None:
    """On an empty Debian of each release, which has a Python and no compiler: see PROOF."""
    for debian, command in PROOF.items():
        begun = time.monotonic()
        words = ("scripts/empty-debian", "bash", "-c", f"python3 --version && {command}")
        said = run(*words, env={"DEBIAN": debian})
        log = ROOT / f"build/{debian}.log"
        log.parent.mkdir(exist_ok=True)
        log.write_text(said)
        (python,) = re.findall(r"^Python ([\d.]+)$", said, re.MULTILINE)
        tests = re.findall(r"\d+ passed[^=]*", said)
        took = round(time.monotonic() - begun)
        say(f"Python {python}, on an empty Debian {debian}: {command} passed in {took} s {' '.join(tests)}")
    say("Python 3.12 was not run: no Debian has it")


def notes() -> str:
    """The changes of this version, and what was shown of its files."""
    changelog = (ROOT / "CHANGELOG.md").read_text()
    changes = re.search(
        rf"^## {re.escape(VERSION)}.*?\n(.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL
    )
    if changes is None:
        sys.exit(f"CHANGELOG.md has no section {VERSION}")
    shown = "\n".join(f"- {each}" for each in SHOWN)
    text = f"# legacy-queue {VERSION}\n\n{changes[1].strip()}\n\n## What was shown\n\n{shown}\n"
    return with_absolute_links(ROOT / "CHANGELOG.md", text)


def main(dist: Path, everything: bool) -> None:
    if everything and run("git", "status", "--porcelain"):
        sys.exit("the tree is not clean: commit first, since a release is made of what is committed")
    os.umask(0o022)  # which sets the modes of what is packed
    epoch = int(run("git", "log", "-1", "--format=%ct"))
    shutil.rmtree(dist, ignore_errors=True)
    dist.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        (scratch / "first").mkdir()
        (scratch / "second").mkdir()
        (sdist, wheel), second = (build(scratch / folder, epoch) for folder in ("first", "second"))
        for file, other in zip((sdist, wheel), second, strict=True):
            if digest(file) != digest(other):
                sys.exit(f"{file.name} differs when it is built again")
            say(f"{file.name}: {file.stat().st_size >> 10} KB, the same when built again")
        check_contents(files(copy(scratch / "tree")), sdist, wheel)
        run(sys.executable, "-m", "twine", "check", "--strict", sdist, wheel, cwd=scratch)
        with ThreadPoolExecutor() as threads:
            shown = [
                threads.submit(show, wheel, scratch / "alone"),
                threads.submit(show_fixture, wheel, scratch / "tree/examples/tox", scratch / "tox"),
            ]
        for each in shown:
            each.result()
        published = [dist / sdist.name, dist / wheel.name, dist / f"legacy_queue-{VERSION}.cdx.json"]
        write_sbom(wheel, published[2], epoch)
        if everything:
            show_bounds(wheel, scratch)
        shutil.move(sdist, dist)
        shutil.move(wheel, dist)
    if everything:
        words = (
            "--requirement",
            "requirements/run.txt",
            "--disable-pip",
            "--format=json",
            "--progress-spinner=off",
        )
        audit("pip-audit", Path(sys.executable).with_name("pip-audit"), *words)
        audit("npm audit", "npm", "audit", "--json", "--omit=dev", cwd=ROOT / "azurite")
        build_image(dist / f"legacy-queue-{VERSION}-image.tar", epoch)
        prove()
    (dist / "NOTES.md").write_text(notes())
    sums = [f"{digest(file)}  {file.name}\n" for file in published]
    (dist / "SHA256SUMS").write_text("".join(sums))
    say(f"all is in {dist}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="scripts/release")
    parser.add_argument("--all", action="store_true", dest="everything")
    parser.add_argument("dist", nargs="?", type=Path, default=ROOT / "dist")
    given = parser.parse_args()
    main(given.dist.resolve(), given.everything)
