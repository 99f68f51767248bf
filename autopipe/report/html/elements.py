"""Build HTML elements. All text is escaped; only the result of an element is markup."""

from html import escape as escape_markup
from typing import Final

from autopipe.report.escape import escape_text

Content = str | int | None
"""Text, markup or a number; None is empty."""

_LONG: Final = 2000
"""Characters of a text, beyond which its middle is omitted."""
_VOID: Final = frozenset({"meta", "rect", "line", "path", "circle"})
"""Elements without children, of HTML and of SVG."""


class Markup(str):
    """HTML that is written without escaping."""

    __slots__ = ()


def make_element(tag: str, *children: Content, **attributes: Content) -> Markup:
    """Build an element.

    Underscores in names of attributes become dashes, except a trailing one, which is removed. None
    omits an attribute.
    """
    attribute_text = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{to_markup(value)}"'
        for name, value in attributes.items()
        if value is not None
    )
    if tag in _VOID and not children:
        return Markup(f"<{tag}{attribute_text}/>" if tag != "meta" else f"<{tag}{attribute_text}>")
    return Markup(f"<{tag}{attribute_text}>{join_markup(*children)}</{tag}>")


def join_markup(*children: Content) -> Markup:
    """Concatenate contents."""
    return Markup("".join(to_markup(child) for child in children))


def join_lines(*children: Content) -> Markup:
    """Join nonempty contents by line breaks."""
    return Markup("\n".join(to_markup(child) for child in children if child))


def to_markup(content: Content) -> Markup:
    """Convert content to markup; text is escaped, including control characters."""
    if isinstance(content, Markup):
        return content
    return Markup("" if content is None else escape_markup(escape_text(str(content), _LONG)))


def make_chart(top: str, paths: Content, ends: tuple[str, str], *, height: int) -> Markup:
    """Build a chart of paths in a square of 100, with a label above it and two below it."""
    drawing = make_element("svg", paths, viewBox="0 0 100 100", preserveAspectRatio="none",
                           aria_hidden="true", height=height)  # fmt: skip
    axis = make_element("div", *(make_element("span", end) for end in ends), class_="axis")
    return make_element("figure", make_element("div", top), drawing, axis)


def make_text_block(rows: tuple[str, ...] | list[str], most: int = 200) -> Markup:
    """Build a preformatted block of at most `most` lines of text."""
    lines = [to_markup(row) for row in rows[:most]]
    if len(rows) > most:
        lines.append(to_markup(f"... and {len(rows) - most} more"))
    return make_element("pre", Markup("\n".join(lines)))
