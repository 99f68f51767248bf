"""Tables of a page. They are complete without the page's script, which sorts and filters them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from autopipe.report.html.elements import Content, Markup, join_lines, make_element
from autopipe.report.units import format_seconds


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell; without a key it is sorted by its text."""

    content: Content
    key: float | None = None
    """Sort key of a number."""
    mark: str | None = None
    """Class of the style sheet, such as `good`."""


@dataclass(frozen=True, slots=True)
class TableRow:
    """A row; its `mark` is a class of the style sheet, such as `changed`."""

    cells: Sequence[Cell | Content]
    mark: str | None = None


def make_table(caption: str, header: Sequence[str], rows: Iterable[TableRow]) -> Markup:
    """Build a table; a column with a name that starts with `>` holds numbers.

    Empty columns are omitted, and a table without rows.
    """
    cell_rows = [(row.mark, [_as_cell(cell) for cell in row.cells]) for row in rows]
    if not cell_rows:
        return Markup()
    columns = [
        at for at in range(len(header))
        if any(cells[at].content not in {None, ""} for _, cells in cell_rows)
    ]  # fmt: skip
    titles = make_element("tr", *(_make_header_cell(header[at]) for at in columns))
    body = [
        make_element(
            "tr", *(_make_cell(cells[at], _is_number(header[at])) for at in columns), class_=mark
        )
        for mark, cells in cell_rows
    ]
    inner = join_lines(make_element("caption", caption), make_element("thead", titles),
                  make_element("tbody", join_lines(*body)))  # fmt: skip
    return make_element("div", make_element("table", inner), class_="scroll", role="region",
                   aria_label=caption, tabindex=0)  # fmt: skip


def make_time_cell(seconds: float | None) -> Cell:
    """Build a cell of seconds; it is empty for None."""
    return Cell(None if seconds is None else format_seconds(seconds), seconds)


def make_ratio_cell(ratio: float | None) -> Cell:
    """Build a cell of a ratio; it is empty for None."""
    return Cell(None if ratio is None else f"{ratio:.2f}", ratio)


def make_verdict_cell(verdict: str | None) -> Cell:
    """Build a cell of a verdict on times; good and bad ones are marked."""
    return Cell(verdict, mark={"faster": "good", "slower": "bad"}.get(verdict or ""))


def make_fact_list(values: Mapping[str, Content]) -> Markup:
    """Build a list of names with their values; empty values are omitted."""
    pairs = [
        make_element("div", make_element("dt", name), make_element("dd", value))
        for name, value in values.items()
        if value not in {None, ""}
    ]
    return make_element("dl", join_lines(*pairs)) if pairs else Markup()


def make_details(summary: Content, *children: Content, **attributes: Content) -> Markup:
    """Build collapsed contents."""
    return make_element("details", make_element("summary", summary), *children, **attributes)


def _as_cell(content: Cell | Content) -> Cell:
    return content if isinstance(content, Cell) else Cell(content)


def _is_number(name: str) -> bool:
    return name.startswith(">")


def _make_header_cell(name: str) -> Markup:
    number = "number" if _is_number(name) else None
    return make_element("th", name.removeprefix(">"), scope="col", class_=number)


def _make_cell(cell: Cell, number: bool) -> Markup:  # noqa: FBT001 -- a field
    classes = " ".join(filter(None, ("number" if number else "", cell.mark)))
    key = None if cell.key is None else f"{cell.key:.9g}"
    return make_element("td", cell.content, class_=classes or None, data_key=key)
