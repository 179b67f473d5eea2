"""If code or a page refers to a page of docs/, the page and the heading exist."""

import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
REFERENCE = re.compile(r"\b(docs/[\w/-]+\.md)(?:#([\w-]+))?")


def tracked() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    paths = (ROOT / name for name in listed.decode().split("\0") if name)
    return [path for path in paths if path.is_file() and path != Path(__file__)]


@cache
def headings(page: Path) -> set[str]:
    """The anchors that Sphinx makes from the page's headings, and the anchors that the page sets itself."""
    prose = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#+ (.*)$", prose, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles} | set(
        re.findall(r"^\(([\w-]+)\)=$", prose, re.MULTILINE)
    )


@pytest.mark.processes
def test_each_reference_to_a_page_leads_to_a_page_and_heading_that_exist() -> None:
    references = {
        (str(path.relative_to(ROOT)), *reference)
        for path in tracked()
        for reference in REFERENCE.findall(path.read_text(errors="replace"))
    }
    assert any(path.startswith("legacy_queue/") for path, *_ in references)
    broken = [
        f"{path}: {page}#{anchor}"
        for path, page, anchor in sorted(references)
        if not (ROOT / page).is_file() or (anchor and anchor not in headings(ROOT / page))
    ]
    assert broken == []
