"""How the documentation is built: `make docs`, without warnings and without a network."""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from generate import write_reference  # noqa: E402

write_reference(HERE / "reference")

project = "gifair-ray"
author = "the authors of gifair-ray"
version = release = metadata.version("gifair-ray")

extensions = ["myst_parser"]
myst_enable_extensions = ["dollarmath", "deflist"]
myst_heading_anchors = 3
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build", "README.md"]
highlight_language = "none"
smartquotes = False

html_theme = "furo"
html_title = "gifair-ray"
html_static_path: list[str] = []
html_show_sourcelink = False
html_copy_source = False
