"""How Sphinx builds these pages: `scripts/docs`."""

import importlib.metadata
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "legacy-queue"
release = importlib.metadata.version(project)
extensions = ["myst_parser", "generated"]
exclude_patterns = ["_ext"]

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = project
html_copy_source = False
html_theme_options = {"footer_icons": []}
