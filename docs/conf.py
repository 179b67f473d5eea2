"""How Sphinx builds these pages: `scripts/docs`."""

import importlib.metadata

project = "legacy-queue"
release = importlib.metadata.version(project)
extensions = ["myst_parser"]
exclude_patterns = ["_ext"]

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
suppress_warnings = ["toc.empty_glob"]
html_theme = "furo"
html_title = project
html_copy_source = False
html_theme_options = {"footer_icons": []}
