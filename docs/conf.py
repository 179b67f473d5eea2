"""How Sphinx builds these pages: `scripts/docs`."""

import importlib.metadata
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "legacy-queue"
release = importlib.metadata.version(project)
extensions = ["myst_parser", "sphinx.ext.autodoc", "generated"]
exclude_patterns = ["_ext", "_static"]

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
smartquotes = False  # an option begins with two hyphens

html_theme = "furo"
html_title = project
html_copy_source = False
html_show_copyright = False
html_static_path = ["_static"]
html_css_files = ["page.css"]
html_theme_options = {"footer_icons": []}
