"""A page as a strict reader sees it."""

from html.parser import HTMLParser

VOID = {"meta"}
"""Elements of these pages that have no end."""


class Page(HTMLParser):
    """All elements, attributes and texts of a page, whose tags have to match."""

    def __init__(self, text):
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str | None]] = []
        self.texts: list[tuple[str, str]] = []
        self.rows: list[list[str]] = []
        self.feed(text)
        self.close()
        assert not self.open, "every element ends"

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]
        if tag == "tr":
            self.rows.append([])
        if tag in {"td", "th"}:
            self.rows[-1].append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        assert self.open.pop() == tag

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, f"</{tag}>"

    def handle_data(self, data):
        self.texts.append((self.open[-1] if self.open else "", data))
        if {"td", "th"} & set(self.open):
            self.rows[-1][-1] += data

    def values(self, name):
        """The values of an attribute, in order."""
        return [value for _, other, value in self.attributes if other == name]

    @property
    def text(self):
        """All that is read, without style and script."""
        return " ".join(text for tag, text in self.texts if tag not in {"style", "script"})
