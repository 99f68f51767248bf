"""Compress long texts in a page, which its script expands."""

import zlib
from base64 import b64encode

from autopipe.report.escape import escape_text
from autopipe.report.html.elements import Markup, make_element
from autopipe.report.html.tables import make_details

_LONGEST = 1 << 20
"""Largest number of characters of a text; the rest is omitted."""


def write_compressed(title: str, text: str) -> Markup:
    """Write a collapsed text; without the page's script a note asks for JavaScript."""
    harmless = "\n".join(escape_text(line, _LONGEST) for line in text[:_LONGEST].split("\n"))
    data = b64encode(zlib.compress(harmless.encode(), 9)).decode()
    needs = make_element("p", "It is compressed; JavaScript shows it.")
    return make_details(title, needs, class_="compressed", data_text=Markup(data))
