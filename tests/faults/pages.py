"""The pages that follow from the cases and the marks: `python -m tests.faults` writes them."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.faults.marks import ROOT, Proofs, proofs
from tests.faults.table import Case, Cases, read

FAULTS = Path("docs/faults.md")
GUARANTEES = Path("docs/guarantees.md")

_WRITTEN = """\
`make gen` writes this page from the cases in `tests/faults/cases` and from the tests that say
`@pytest.mark.fault("C3")`. Exit codes are [these](reference/exit-codes.md).
"""
_FAULTS = """\
# Faults

What may go wrong, what we promise then, and the tests that prove it. {counts}

{written}{lists}"""
_GUARANTEES = """\
# Guarantees

What holds whatever goes wrong. {counts} The faults that were tried are in [faults.md](faults.md).

{written}
{rows}"""


def pages(root: Path = ROOT) -> Iterator[tuple[Path, str]]:
    """Yield each page under `root` with the text it should have."""
    lists, proven = read(), proofs(root)
    faults = [each for each in lists if each.title != "Guarantees"]
    (guarantees,) = (each for each in lists if each.title == "Guarantees")
    every = [case for each in faults for case in each.cases]
    sections = "".join(_section(each, proven) for each in faults)
    counts = _counts(every, proven)
    yield root / FAULTS, _FAULTS.format(counts=counts, written=_WRITTEN, lists=sections)
    counts = _counts(guarantees.cases, proven)
    rows = _rows(("guarantee", "how"), guarantees.cases, proven)
    yield root / GUARANTEES, _GUARANTEES.format(counts=counts, written=_WRITTEN, rows=rows)


def _section(cases: Cases, proven: Proofs) -> str:
    title = f"\n## {cases.cases[0].id[0]}. {cases.title}\n\n"
    return title + _rows(("case", "promise"), cases.cases, proven)


def _rows(heads: tuple[str, str], cases: Sequence[Case], proven: Proofs) -> str:
    lines = [f"| | {heads[0]} | {heads[1]} | proven by |", "|---|---|---|---|"]
    for case in cases:
        cells = (case.id, case.case, _promise(case), _proof(case, proven))
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _promise(case: Case) -> str:
    if case.not_taken:
        return f"not taken: {case.not_taken}"
    return f"{case.promise}. Not taken: {case.without}" if case.without else f"{case.promise}"


def _proof(case: Case, proven: Proofs) -> str:
    if case.not_taken:
        return "-"
    return "<br>".join(map(_test, proven.get(case.id, ()))) or "**open**"


def _test(name: str) -> str:
    test, _, slow = name.partition(" ")
    return f"`{test.removeprefix('tests/')}`{slow and ' ' + slow}"


def _counts(cases: Sequence[Case], proven: Proofs) -> str:
    out = [case for case in cases if case.not_taken]
    done = [case for case in cases if case.promise and case.id in proven]
    left = [case.id for case in cases if case.promise and case.id not in proven]
    tests = {test for case in done for test in proven[case.id]}
    text = (
        f"{len(cases)} cases: {len(done)} proven by {len(tests)} tests, {len(out)} not taken, "
        f"{len(left)} open"
    )
    return f"{text} ({', '.join(left)})." if left else f"{text}."
