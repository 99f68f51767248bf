"""Each trouble of the RFC's thread ends as `docs/concepts/tasks.md` says."""

import os
from pathlib import Path

from tests.support.table import each_row
from tests.tasks.conftest import Odd
from tests.tasks.thread import TROUBLES, Trouble, table

DOCS = Path(__file__).parents[2] / "docs" / "concepts" / "tasks.md"
BEGIN, END = "<!-- troubles: tests/tasks/thread.py -->\n", "<!-- end of troubles -->\n"


@each_row("trouble", TROUBLES)
def test_a_trouble_has_the_outcome_that_is_told(odd: Odd, trouble: Trouble):
    trouble.proof(odd)


def test_the_page_shows_the_rows_that_are_proven():
    """If this fails the rows changed: run it with BLESS=1."""
    text = DOCS.read_text("utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    current = f"{before}{BEGIN}\n{table()}\n{END}{after}"
    if os.environ.get("BLESS"):
        DOCS.write_text(current, "utf-8")
    assert text == current or os.environ.get("BLESS")
