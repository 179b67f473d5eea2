"""Reads a Markdown page as the steps that a reader takes.

- Blocks marked ``sh``, ``python`` and ``js`` are run in order, in one terminal and one scratch folder.
- A ``text`` block after such a block is what the block prints, unless a heading or another block is between
  them. ``...`` stands for any text in a line, and a line of ``...`` for any lines.
- ``toml`` blocks are settings, which the server must accept.

An HTML comment directly before a block, which readers do not see, changes what happens with it:

- ``<!-- run: background -->``: the command keeps running, and the test waits until it prints the text below.
- ``<!-- run: exit 2 -->``: the block must end with this exit code.
- ``<!-- run: file NAME -->``: the block, in any language, is saved as NAME in the scratch folder.
- ``<!-- run: sample -->``: the block is an example, not output or settings to check.
- ``<!-- run: stop -->``, anywhere: stop the last background command.
- ``<!-- not run: REASON -->``: the block is not run. If the reason matters to readers, the page says it too.

``<!-- needs: server rabbitmq -->``, anywhere on the page, gives it a server, a broker or both. The server has
memory storage and ``--control``, and several pages share it. On the page, its URL is
``http://127.0.0.1:8080``, and ``legacy-queue`` finds it as if it ran in the scratch folder. For the broker,
``AMQP_URL`` is set.

When a page is tested, ports of four or five digits are replaced by free ones if they are written like
``127.0.0.1:8443``, ``--port 8443`` or ``port = 8443``.

If a block that is not run says ``pip install taskcluster==113.2.0`` or ``npm install
taskcluster-client@11.0.0``, the blocks after it find this version, because the tests have it installed.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

RUN = {"sh": "bash", "python": "python", "js": "node"}
SHOWN = {"text", "toml", "json", "yaml", "xml", "http", "go", "ini", "html", "docker"}
_COMMENT = re.compile(r"<!-- (run|not run|needs): ([^>]+?) -->\s*")
_MARKS = re.compile(r"background|exit \d+|file \S+|sample")
_NEEDS = {"server", "rabbitmq"}
_NOT_RUN = "not run"


@dataclass(frozen=True)
class Step:
    """A block of the page, or a mark without one. If ``is_output``, it is the output of the step before."""

    line: int
    language: str
    text: str
    mark: str = ""
    is_output: bool = False

    @property
    def is_run(self) -> bool:
        return self.mark != _NOT_RUN


class BadPage(Exception):
    """The page is wrong. The message tells its author why."""


@dataclass(frozen=True)
class Page:
    steps: tuple[Step, ...]
    needs: frozenset[str]


def read(path: Path) -> Page:
    """Returns the steps of a page.

    Raises BadPage if a block has no language or an unknown one, or if a mark is unknown or not before a
    block.
    """
    needs: set[str] = set()
    steps = list(_steps(MarkdownIt("commonmark").parse(path.read_text()), needs))
    if unknown := needs - _NEEDS:
        raise BadPage(f"{path} needs {unknown}: expected some of {_NEEDS}")
    return Page(tuple(steps), frozenset(needs))


def _steps(tokens: list[Token], needs: set[str]) -> Iterator[Step]:
    mark = ""
    last = None
    for token in tokens:
        line = token.map[0] + 1 if token.map else 0
        if token.type == "code_block":
            raise BadPage(f"line {line}: a block has no language: use a fence with one")
        if token.type == "html_block":
            for kind, value in _COMMENT.findall(token.content):
                if kind == "needs":
                    needs |= set(value.split())
                elif value == "stop":
                    yield Step(line, "", "", value)
                elif kind == "run" and not _MARKS.fullmatch(value):
                    raise BadPage(f"line {line}: unknown mark {value!r}")
                else:
                    mark = value if kind == "run" else _NOT_RUN
        elif mark and token.type in ("paragraph_open", "heading_open"):
            raise BadPage(f"line {line}: the mark {mark!r} before it belongs directly before a block")
        elif token.type == "heading_open":
            last = None
        elif token.type == "fence" and (step := _step(token, line, mark, last)):
            yield step
            last = step
            mark = ""


def _step(token: Token, line: int, mark: str, last: Step | None) -> Step | None:
    language = token.info.split(" ")[0]
    if language.startswith("{") and not re.match(r"\{(code|literal|parsed)", language):
        return None  # a directive of MyST
    if language not in RUN.keys() | SHOWN:
        raise BadPage(f"line {line}: the language is {token.info!r}: expected one of {RUN.keys() | SHOWN}")
    follows = last is not None and last.language in RUN and last.is_run
    is_output = language == "text" and mark == "" and follows
    return Step(line, language, token.content, mark, is_output)


def pattern(expected: str) -> re.Pattern[str]:
    """A pattern for the expected output. ``...`` matches any text in a line, a line of ``...`` any lines."""
    lines = [
        "(?:.*\n)*?"
        if line.strip() == "..."
        else ".*?".join(map(re.escape, line.rstrip().split("..."))) + "[ \t]*\n"
        for line in expected.strip("\n").splitlines()
    ]
    return re.compile("".join(lines))
