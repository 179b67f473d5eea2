"""A Markdown page as the steps that a reader takes.

Blocks marked ``sh``, ``python`` and ``js`` are run in order, in one terminal and one scratch folder. A
``text`` block behind such a block, with no heading and no other block between them, is what it prints:
``...`` stands for anything in a line, a line of ``...`` for any lines. ``toml`` blocks are settings, and they
must be accepted.

What the reader does not see is an HTML comment, directly before a block:

- ``<!-- run: background -->``: the command goes on while the page does; the text below is waited for;
- ``<!-- run: exit 2 -->``: the exit code of the block;
- ``<!-- run: file NAME -->``: the block, in any language, is saved as NAME in the scratch folder;
- ``<!-- run: sample -->``: the block is no output, or no settings;
- ``<!-- run: stop -->``, anywhere: end the last background command;
- ``<!-- not run: REASON -->``: the block is not run. A reason that matters to the reader is on the page too.

And anywhere on the page ``<!-- needs: server rabbitmq -->``. A server is one with memory storage and
``--control`` that several pages share; its URL is ``http://127.0.0.1:8080`` on the page, and
``legacy-queue`` finds it as if it ran in the scratch folder. For a broker ``AMQP_URL`` is set. Ports of
four or five digits are others when a page is tested, wherever they stand as in ``127.0.0.1:8443``,
``--port 8443`` or ``port = 8443``.

Where a block that is not run says ``pip install taskcluster==113.2.0`` or ``npm install
taskcluster-client@11.0.0``, what follows finds that version, which the tests have installed.
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
    """A block of the page, or a mark that stands alone; ``is_output``: the output of the step before it."""

    line: int
    language: str
    text: str
    mark: str = ""
    is_output: bool = False

    @property
    def is_run(self) -> bool:
        return self.mark != _NOT_RUN


class BadPage(Exception):
    """What is wrong with the page, for its author."""


@dataclass(frozen=True)
class Page:
    steps: tuple[Step, ...]
    needs: frozenset[str]


def read(path: Path) -> Page:
    """Raises BadPage for a block without a language or with an unknown language, and for a mark that is
    unknown or not before a block.
    """
    needs: set[str] = set()
    steps = list(_steps(MarkdownIt("commonmark").parse(path.read_text()), needs))
    if unknown := needs - _NEEDS:
        raise BadPage(f"{path} needs {unknown}: {_NEEDS} are known")
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
                    raise BadPage(f"line {line}: {value!r} is no mark that is known")
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
        return None  # a directive
    if language not in RUN.keys() | SHOWN:
        raise BadPage(f"line {line}: {token.info!r} is no language that is known here: {RUN.keys() | SHOWN}")
    follows = last is not None and last.language in RUN and last.is_run
    is_output = language == "text" and mark == "" and follows
    return Step(line, language, token.content, mark, is_output)


def pattern(expected: str) -> re.Pattern[str]:
    """What matches the output: ``...`` is anything in a line, a line of ``...`` any lines."""
    lines = [
        "(?:.*\n)*?"
        if line.strip() == "..."
        else ".*?".join(map(re.escape, line.rstrip().split("..."))) + "[ \t]*\n"
        for line in expected.strip("\n").splitlines()
    ]
    return re.compile("".join(lines))
