"""Configuration of the site that `make docs` builds from these pages with Sphinx.

`index.md` is the navigation: each of its sections becomes a part of the sidebar. A page that it
does not list fails the build, unless `UNLISTED` names it.

Sphinx refuses unlisted pages, and its search works from the file system. Zensical, which was tried
as well, does not refuse them, and for such a search it fetches a script from a CDN.
"""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from sphinx.application import Sphinx

UNLISTED: Final = ("adr/index", "figures")
"""Pages that others link to, and that the sidebar leaves out."""

project = "autopipe"
root_doc = "index"
extensions = ["myst_parser"]
myst_heading_anchors = 4  # as GitHub makes them
nitpicky = True
html_theme = "furo"
html_title = project
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_copyright = False
html_search_scorer = str(Path(__file__).with_name("scorer.js"))
html_show_search_summary = False  # a browser fetches no text for them from the file system


def setup(app: "Sphinx") -> None:
    """Register the navigation; Sphinx calls this."""
    app.connect("source-read", add_navigation)


def add_navigation(_: "Sphinx", page: str, source: list[str]) -> None:
    """Append the tables of contents to the two index pages, and mark the unlisted pages."""
    if page == root_doc:
        source[0] += "".join(to_toctree(section) for section in source[0].split("\n## ")[1:])
    if page == "adr/index":
        source[0] += "\n```{toctree}\n:glob:\n:titlesonly:\n\n[0-9]*\n```\n"
    if page in UNLISTED:
        source[0] = f"---\norphan: true\n---\n{source[0]}"


def to_toctree(section: str) -> str:
    """Convert a section to a hidden table of contents: its heading, then the pages it links to."""
    caption = section.partition("\n")[0].partition(":")[0]
    links = re.findall(r"\[([^]]+)\]\(([\w/-]+)\.md\)", section)
    pages = "\n".join(f"{title} <{page}>" for title, page in links)
    return f"\n```{{toctree}}\n:hidden:\n:titlesonly:\n:caption: {caption}\n\n{pages}\n```\n"
