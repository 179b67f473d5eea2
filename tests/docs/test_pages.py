"""Every page under docs/, and README, does what it says: see tests/docs/page.py for how a page is written."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import boto3
import pytest
from botocore.config import Config

from tests.docs.page import BadPage, Page, read
from tests.docs.terminal import ROOT, Terminal
from tests.system.processes import Server, serve

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

# The blocks that cannot be run here, by their first lines. Each stands below the reason, for the reader.
NOT_RUN = {
    "docs/how-to/artifacts.md": ["python3 -m venv client"],
    "docs/how-to/containers.md": [
        "docker build --file Containerfile --tag legacy-queue .",
        "docker run --name legacy-queue --detach --volume legacy-queue:/data --publish 8080:8080 \\",
        "LISTEN=0.0.0.0 PUBLIC_HOST=my-machine.example.com \\",
        "deploy/secrets",
        "set -a; . secrets/client.env; set +a",
    ],
    "docs/how-to/scale-out.md": ["cat > legacy-queue.env <<END"],
    "docs/how-to/tls.md": [
        "sudo iptables -t nat -A PREROUTING -p tcp --dport 443 -j REDIRECT --to-ports 8443"
    ],
    "docs/how-to/in-tests.md": ["npm install taskcluster-client@11.0.0"],
    "docs/how-to/install.md": [
        "python3 -m venv .venv",
        "python3 -m venv legacy-queue",
        "npm install -g azurite",
    ],
    "README.md": ["scripts/test"],
    "docs/how-to/old-client.md": ["python3 -m venv client", "npm install taskcluster-client@11.0.0"],
    "docs/how-to/real-azure.md": [
        "az storage account show-connection-string --resource-group my-group --name myaccount --output tsv",
        "legacy-queue serve --config azure.toml",
        "docker run --detach --publish 127.0.0.1:10000-10002:10000-10002 --volume azurite:/data \\",
    ],
    "docs/how-to/migrate.md": ["pip install taskcluster==113.2.0"],
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serve(tmp_path_factory.mktemp("server"), "--storage", "memory", "--control") as running:
        yield running


def offered(page: Page, request: pytest.FixtureRequest) -> tuple[dict[str, str], dict[str, int]]:
    """The variables and the ports of the servers that the page needs."""
    env, ports = {}, {}
    if "server" in page.needs:
        running = request.getfixturevalue("server")
        env["LEGACY_QUEUE_ROOT_URL"] = running.root_url
        env["TASKCLUSTER_CLIENT_ID"] = running.credentials["clientId"]
        env["TASKCLUSTER_ACCESS_TOKEN"] = running.credentials["accessToken"]
        ports["8080"] = int(running.root_url.rpartition(":")[2])
    if "rabbitmq" in page.needs:
        env["AMQP_URL"] = request.getfixturevalue("rabbitmq").url
    if "s3" in page.needs:
        s3 = request.getfixturevalue("s3_server")
        keys = {"aws_access_key_id": s3.access_key_id, "aws_secret_access_key": s3.secret_access_key}
        path_style = Config(s3={"addressing_style": "path"})
        client = boto3.client(
            "s3", endpoint_url=s3.endpoint, region_name="us-east-1", config=path_style, **keys
        )
        client.create_bucket(Bucket="docs")
        env |= {"S3_ENDPOINT": s3.endpoint, "S3_BUCKET": "docs", **{k.upper(): v for k, v in keys.items()}}
    return env, ports


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_everything_on_the_page_works_in_order(
    path: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    page = read(path)
    if page.steps:
        follow(page, tmp_path, *offered(page, request))


def follow(page: Page, folder: Path, env: Mapping[str, str], ports: dict[str, int]) -> None:
    """Take the steps of the page, in order."""
    terminal = Terminal(folder, env, ports)
    try:
        printed = None
        for step in page.steps:
            printed = terminal.take(step, printed)
    finally:
        terminal.close()


def test_only_the_listed_blocks_are_not_run() -> None:
    assert {name_of(path): page.not_run for path in PAGES if (page := read(path)).not_run} == NOT_RUN


BAD = {
    "a block without a language": "```\nls\n```\n",
    "an indented block": "text\n\n    ls\n",
    "a language that cannot be run": "```bash\nls\n```\n",
    "a directive that hides a block": "```{code-block} sh\nls\n```\n",
    "an unknown mark": "<!-- run: never -->\n\n```sh\nls\n```\n",
    "an unknown need": "<!-- needs: luck -->\n",
}


@pytest.mark.parametrize("text", BAD.values(), ids=BAD.keys())
def test_a_page_with_a_mistake_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "page.md").write_text(text)
    with pytest.raises(BadPage):
        read(tmp_path / "page.md")


GOOD = """# Page

```sh
greeting=hello
mkdir sub && cd sub
```

<!-- run: background -->
```sh
echo "  export WHO=you"
echo ready
exec sleep 600
```

```text
ready
```

Enter what it prints:

<!-- run: exports -->
```sh
export WHO=...
```

<!-- run: exit 3 -->
```sh
echo "$greeting $WHO"
echo http://127.0.0.1:8080
(exit 3)
```

It prints:

```text
hello ...u
...
```

<!-- run: stop -->

<!-- run: file said.json -->
```json
{"rootUrl": "http://127.0.0.1:8080"}
```

```sh
cat ../said.json
```

```text
{"rootUrl": "http://127.0.0.1:8080"}
```

```python
import os

print(os.environ["WHO"], os.getcwd())
```

```text
you .../scratch/sub
```

Not run by the tests: there is no cluster here.

```sh
kubectl apply -f deploy/
```
"""
WRONG = {
    "a command that fails, with those behind it": "```sh\nfalse\ntrue\n```\n",
    "another output": "```sh\necho one\n```\n\n```text\ntwo\n```\n",
    "a missing line": "```sh\necho one\n```\n\n```text\none\n...\ntwo\n```\n",
    "another exit code": "<!-- run: exit 1 -->\n```sh\ntrue\n```\n",
    "a mistake in Python": "```python\nimport nothing_like_this\n```\n",
    "an unknown setting": "```toml\nclaim-time = 1\n```\n",
}


def test_variables_folders_and_jobs_last_from_block_to_block(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text(GOOD)
    page = read(tmp_path / "page.md")
    assert page.not_run == ["kubectl apply -f deploy/"]
    follow(page, tmp_path, {}, {})


@pytest.mark.parametrize("text", WRONG.values(), ids=WRONG.keys())
def test_a_page_whose_steps_fail_is_reported_with_the_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "page.md").write_text(text)
    with pytest.raises(AssertionError, match=r"line [125]:"):
        follow(read(tmp_path / "page.md"), tmp_path, {}, {})
