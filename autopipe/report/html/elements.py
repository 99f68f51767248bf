"""HTML elements. Text is escaped wherever it is put in; only what an element returns is markup."""

from html import escape as escape_markup
from typing import Final

from autopipe.report.escape import escape_text

Content = str | int | None
"""Text, markup or a number; null is nothing."""

_LONG: Final = 2000
"""Characters of a text, beyond which its middle is left out."""
_VOID: Final = frozenset({"meta", "rect", "line", "path", "circle"})
"""Elements without children, of HTML and of SVG."""


class Markup(str):
    """HTML that is written as it is."""

    __slots__ = ()


def make_element(tag: str, *children: Content, **attributes: Content) -> Markup:
    """Return an element.

    Underscores in names of attributes stand for dashes, one at their end for nothing. An attribute
    that is null is left out.
    """
    given = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{to_markup(value)}"'
        for name, value in attributes.items()
        if value is not None
    )
    if tag in _VOID and not children:
        return Markup(f"<{tag}{given}/>" if tag != "meta" else f"<{tag}{given}>")
    return Markup(f"<{tag}{given}>{join_markup(*children)}</{tag}>")


def join_markup(*children: Content) -> Markup:
    """Return contents one after the other."""
    return Markup("".join(to_markup(child) for child in children))


def join_lines(*children: Content) -> Markup:
    """Return contents on a line each, as far as they are there."""
    return Markup("\n".join(to_markup(child) for child in children if child))


def to_markup(content: Content) -> Markup:
    """Return content as markup: text without characters that control how it is shown."""
    if isinstance(content, Markup):
        return content
    return Markup("" if content is None else escape_markup(escape_text(str(content), _LONG)))


def make_text_block(rows: tuple[str, ...] | list[str], most: int = 200) -> Markup:
    """Return lines of text as they are; of too many, the first ones."""
    kept = [to_markup(row) for row in rows[:most]]
    if len(rows) > most:
        kept.append(to_markup(f"... and {len(rows) - most} more"))
    return make_element("pre", Markup("\n".join(kept)))
