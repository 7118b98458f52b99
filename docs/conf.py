"""`make site`: Sphinx makes a site of README, docs/ and the public docstrings, in build/site.

Pages are written for a reader of the repository. What differs here: the first page is README and
the lists in `index`, and links to files outside docs/ are their names, for no such file is
on the site. Diagrams are drawn in the reader's browser by mermaid.min.js of the npm package, which
the Makefile fetches: the site asks no other server, and opens from disk.
"""

import html
import re
import sys
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")

sys.path.insert(0, str(ROOT))
project = "Tidemark"
author = "The Tidemark developers"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
source_suffix = {".md": "markdown"}
root_doc = "index"
exclude_patterns = ["README.md"]
suppress_warnings = ["misc.highlighting_failure"]  # csv has no highlighter
myst_heading_anchors = 4
myst_fence_as_directive = ["mermaid"]
html_theme = "furo"
html_static_path = [str(ROOT / "build/mermaid")]
html_js_files = ["mermaid.min.js"]
default_role = "code"  # docstrings write `name`
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
napoleon_use_ivar = True


def with_links_of_the_site(text: str, folder: Path, page: str) -> str:
    """Give links to files outside docs/ as names, and links within it as seen from `page`."""

    def link(found: re.Match[str]) -> str:
        image, words, target = found.groups()
        path, _, anchor = target.partition("#")
        if "://" in target or not path:
            return found[0]
        there = (folder / path).resolve()
        if not there.exists():
            logging.getLogger(__name__).warning("no such file: %s", target, location=page)
        if there == DOCS / "README.md":
            return words
        if there.is_relative_to(DOCS) and there.is_file():
            up = "../" * page.count("/")
            return f"{image}[{words}]({up}{there.relative_to(DOCS)}{'#' * bool(anchor)}{anchor})"
        return words if "`" in words else f"`{words.removeprefix('../')}`"

    return LINK.sub(link, text)


def read_source(_: Sphinx, page: str, source: list[str]) -> None:
    """Make the first page of README; repair links."""
    if page == root_doc:
        readme = (ROOT / "README.md").read_text()
        source[0] = with_links_of_the_site(readme, ROOT, page) + "\n" + source[0]
    else:
        source[0] = with_links_of_the_site(source[0], (DOCS / page).parent, page)


class Mermaid(SphinxDirective):
    """A diagram, as the script on the page looks for it."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        """Give the text of the diagram to the page."""
        text = html.escape("\n".join(self.content))
        return [nodes.raw("", f'<pre class="mermaid">{text}</pre>', format="html")]


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.add_directive("mermaid", Mermaid)
    app.connect("source-read", read_source)
