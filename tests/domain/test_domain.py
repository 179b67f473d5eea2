"""The domain has rules only. Colors and markup are made elsewhere."""

import re
from pathlib import Path

import legacy_queue.domain


def test_no_rule_has_a_color_or_markup() -> None:
    for file in Path(legacy_queue.domain.__path__[0]).glob("*.py"):
        assert re.search("#[0-9a-f]{6}|</|tabindex", file.read_text()) is None, file
