"""Long texts that a page holds compressed: its script shows them."""

import zlib
from base64 import b64encode

from autopipe.report.escape import escape_text
from autopipe.report.html.elements import Markup, make_element
from autopipe.report.html.tables import make_details

_LONGEST = 1 << 20
"""Characters of a text; the rest is left out."""


def write_compressed(title: str, text: str) -> Markup:
    """Return a text that is folded away; without the page's script it says that it needs it."""
    harmless = "\n".join(escape_text(line, _LONGEST) for line in text[:_LONGEST].split("\n"))
    data = b64encode(zlib.compress(harmless.encode(), 9)).decode()
    needs = make_element("p", "It is compressed; JavaScript shows it.")
    return make_details(title, needs, class_="compressed", data_text=Markup(data))
