import pytest
from markdown_it import MarkdownIt

from autopipe.artifacts.benchmark import Round, SizedTimes
from autopipe.report.document import Notice, TaskReport
from autopipe.report.markdown import format_code, format_code_block, format_markdown
from tests.report.names import NAMES
from tests.report.reports import full, measurement
from tests.support.table import each_row

GITHUB = MarkdownIt("commonmark").enable(["table", "strikethrough"])


def parsed(text):
    """All tokens of a text, those inside of lines too."""
    return [
        inner for token in GITHUB.parse(text) for inner in (token, *(token.children or ()))
    ]  # fmt: skip


def rows(text):
    """The cells of each table."""
    found: list[list[str]] = []
    row: list[str] | None = None
    for token in GITHUB.parse(text):
        if token.type == "tr_open":
            row = []
            found.append(row)
        elif token.type == "inline" and row is not None:
            row.append("".join(inner.content for inner in token.children or ()))
        elif token.type == "tr_close":
            row = None
    return found


def test_a_summary_says_what_a_pull_request_wants_to_know():
    text = format_markdown(full())
    assert text.startswith("## `demo` finished in 41.2 s\n")
    found = rows(text)
    assert ["build", "finished", "1.5 s", "demo"] in found
    assert ["package", "not run", "", ""] in found
    assert ["onnxruntime 1.31", "2 ms", "1.99 ms to 2.01 ms", "0.50", "faster"] in found
    assert ["ansor", "direct", "1", "75.0%"] in found
    assert ["demo", "2", "2 ms", "ansor"] in found
    assert [
        "fused_conv",
        "75.0%",
        "1.5 ms",
        "1.2 ms",
        "500 us",
        "25.0%",
        "9",
        "its trials are spent",
    ] in found
    assert ["gates.b", "inconclusive", "demo"] in found
    assert "Of the kept tasks' time 70.0% searched, 90.0% measured, 80.0% steady in this" in text
    assert "All timed tasks come to 2 ms; the model took 1 ms, with 1 task not timed.\n" in text
    assert "- `tasks`: `demo`" in text
    assert text.endswith(f"`demo`, 1.0 MiB, sha256 `{'ab' * 32}`\n")


def test_times_of_an_earlier_run_are_never_shown():
    stages = list(full().stages)
    stages[2] = stages[2].model_copy(update={"state": "skipped", "summary": "nothing changed"})
    text = format_markdown(full(benchmark=None, stages=tuple(stages), gates=()))
    assert "Latency was not measured by this run, and times are never taken" in text
    assert "1 ms" not in text
    assert "tasks, as measured when they were tuned; 1 time in all only claimed\n" in text


@pytest.mark.fault("N3")
def test_what_disturbed_a_benchmark_is_told():
    busy = Round(conditions={}, disturbed="other programs took 87%")
    found = measurement().model_copy(update={"rounds": (Round(conditions={}), busy)})
    text = format_markdown(full(benchmark=found))
    assert "\n\n1 round of 2 left out, for others disturbed.\n" in text
    found = found.model_copy(update={"disturbed": "they took 87% in 1 of 2 rounds"})
    text = format_markdown(full(benchmark=found))
    assert "\n\nDisturbed: `they took 87% in 1 of 2 rounds`.\n" in text


def test_a_failure_is_told_in_full():
    text = format_markdown(
        full(exit_code=1, outcome="failed", error="output is wrong\n  would pass")
    )
    assert "## `demo` failed in 41.2 s\n\nExit code 1:\n\n```\noutput is wrong\n" in text


def test_a_run_that_did_not_get_far_is_a_summary_too():
    nothing = {
        "stages": (),
        "tasks": (),
        "gates": (),
        "warnings": (),
        "package": None,
        "headroom": (),
    }
    report = full(**nothing, pipeline=None, benchmark=None, verification=None, searched_share=None)
    assert format_markdown(report) == "## `pipeline` finished in 41.2 s\n"


def test_long_reports_are_cut():
    many = tuple(Notice(stage="tasks", message=f"{n}") for n in range(25))
    tasks = tuple(
        TaskReport(name=f"t{n}", workload="0", calls=1, engine="e", implementation="i",
                   seconds=float(n + 1), reason="")
        for n in range(9)
    )  # fmt: skip
    text = format_markdown(full(warnings=many, tasks=tasks, headroom=()))
    assert "### 25 warnings" in text
    assert "- and 5 more\n" in text
    assert [row[0] for row in rows(text) if row[0][0] == "t"] == [
        "task", "t8", "t7", "t6", "t5", "t4",
    ]  # fmt: skip


ALLOWED = {
    "heading_open", "heading_close", "inline", "text", "code_inline", "softbreak",
    "paragraph_open", "paragraph_close", "fence", "bullet_list_open", "bullet_list_close",
    "list_item_open", "list_item_close", "table_open", "table_close", "thead_open", "thead_close",
    "tbody_open", "tbody_close", "tr_open", "tr_close", "th_open", "th_close", "td_open",
    "td_close",
}  # fmt: skip


@pytest.mark.fault("E12")
@each_row("name", NAMES)
def test_any_name_is_text_in_code_and_nothing_else(name):
    text = format_markdown(full(name))
    text.encode()
    tokens, others = parsed(text), parsed(format_markdown(full()))
    assert {token.type for token in tokens} <= ALLOWED
    assert [token.type for token in tokens] == [token.type for token in others]
    written = [token.content for token in tokens if token.type == "text"]
    assert written == [token.content for token in others if token.type == "text"]


@pytest.mark.fault("E12")
@each_row("name", NAMES)
def test_an_error_stays_in_its_block(name):
    tokens = GITHUB.parse("\n".join([*format_code_block(name), "", "end"]))
    assert [token.type for token in tokens] == [
        "fence", "paragraph_open", "inline", "paragraph_close",
    ]  # fmt: skip


def test_code_shows_what_it_is_given():
    for name in ("a`b", "`a`", "a b", "x*y*", "<b>", "a\\"):
        (token,) = GITHUB.parseInline(format_code(name))[0].children or []
        assert (token.type, token.content) == ("code_inline", name)
    assert len(format_code("x" * 1000)) < 310
    assert format_code("") == "`   `"


def test_times_of_dynamic_sizes_are_a_table():
    found = measurement()
    ours, theirs = found.ours.latency, found.competitors[0].latency
    at = SizedTimes(
        sizes={"batch": 8, "length": 128}, likely=True, ours=ours,
        competitors={"onnxruntime": theirs}, comparisons=found.comparisons,
    )  # fmt: skip
    other = at.model_copy(
        update={"sizes": {"batch": 3, "length": 7}, "likely": False, "competitors": {}}
    )
    measured = found.model_copy(update={"at_sizes": (at, other)})
    text = rows(format_markdown(full(benchmark=measured)))
    assert ["batch = 8, length = 128", "likely", "1 ms", "2 ms", "0.50", "faster"] in text
    assert ["batch = 3, length = 7", "generic", "1 ms", "", "", ""] in text
    assert measured.summary().startswith("batch = 8, length = 128: 1 ms (")
    assert measured.summary().endswith("; mean ratio to onnxruntime 0.50 over 2 sizes")


def test_the_best_of_several_competitors_is_named():
    report = full()
    assert report.benchmark is not None
    assert "best competitor" not in format_markdown(report)
    benchmark = report.benchmark.model_copy(update={"best": "onnxruntime"})
    told = format_markdown(report.model_copy(update={"benchmark": benchmark}))
    assert "Against the best competitor, `onnxruntime`: 0.50, faster." in told
