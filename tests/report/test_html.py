import re
import unicodedata
import zlib
from base64 import b64decode, b64encode
from hashlib import sha256
from typing import Any

import pytest

from autopipe.artifacts.benchmark import SizedTimes
from autopipe.report.document import (
    GraphCall,
    KernelGraph,
    RunReport,
    SinceLastBuild,
    TaskReport,
    TuningCourse,
    TuningCurve,
)
from autopipe.report.html.page import SECTIONS, build_page
from tests.artifacts.examples import checked_case, comparison, verification
from tests.report.names import NAMES
from tests.report.pages import Page
from tests.report.reports import full, measurement
from tests.support.table import each_row


def test_a_page_tells_what_is_asked_of_a_run():
    page = Page(build_page(full()))
    assert page.tags.count("section") == len(SECTIONS)
    assert [text for tag, text in page.texts if tag == "h2"] == list(SECTIONS)
    assert ["onnxruntime 1.31", "2 ms", "1.99 ms to 2.01 ms", "0.50", "faster"] in page.rows
    assert ["gates.b", "inconclusive", "demo"] in page.rows
    assert ["build", "finished", "1.5 s", "demo", "abababababab"] in page.rows
    assert ["input", "demo", "float32", "batch x 3"] in page.rows
    assert ["output", "demo", "int64", "? x 4"] in page.rows
    assert ["demo", "1 of 9 trials failed", ""] in page.rows
    assert ["add", "not tuned", "demo"] in page.rows
    failed = ["demo", "case 'wrong'", "failed"]
    assert [row for row in page.rows if row[:3] == failed], "the failing case of an output"
    (kernel,) = (row for row in page.rows if row[:1] and row[0].startswith("demowhy"))
    assert kernel[1:] == ["2", "ansor", "direct", "500 us", "1 ms", " 75.0%", "2", "0.00819",
                          "75.0%", "demo, demo"]  # fmt: skip


def test_tir_is_compressed_and_harmless():
    """The bytes are those of the text, and the page says what shows them."""
    text = "@T.prim_func\ndef main():\n    pass  # \u202e\x1b"
    (task, *others) = full().tasks
    page = build_page(full(tasks=(task.model_copy(update={"tir": text}), *others)))
    (data,) = re.findall(r'<details class="compressed" data-text="([^"]+)"', page)
    shown = zlib.decompress(b64decode(data)).decode()
    assert shown.split("\n")[:2] == ["@T.prim_func", "def main():"]
    assert shown.isascii()
    assert "JavaScript shows it" in Page(page).text
    assert 'class="compressed"' not in build_page(full(tasks=others))


def test_a_task_that_no_call_is_of_is_no_kernel():
    """TVM makes a view of what only reshapes; where a task is not known, all tasks count."""
    (graph,) = full().graphs
    own, other, unknown = graph.calls
    known = graph.model_copy(update={"calls": (own.model_copy(update={"reads": ()}),)})
    page = Page(build_page(full(graphs=(known,))))
    assert "1, in 2 calls a run" in page.text
    assert not [row for row in page.rows if row[1:4] == ["1", "static", "direct"]]
    assert "2, in 3 calls a run" in Page(build_page(full(graphs=(graph,)))).text
    assert (other.task, unknown.task) == (1, None)


def test_a_build_that_fails_shows_its_errors_and_what_to_do_next():
    """A special case decides only where one fails."""
    good = checked_case("random-0", comparison("y"))
    bad = comparison("y", failure="differs", max_abs=0.5, used=50)
    special = checked_case("huge", bad)
    checked = verification(good, special=(special,), failure="output 'y' is wrong")
    page = Page(build_page(full(verification=checked)))
    assert "output 'y' is wrong." in page.text
    assert "autopipe bisect FILE" in page.text
    assert "1 case of 2 failed" in page.text
    (worst, *_) = (row for row in page.rows if row[:1] == ["y"])
    assert worst[:5] == ["y", "case 'huge'", "failed", "50 times", "0.5"]
    passed = Page(build_page(full(verification=verification(good, special=(special,)))))
    assert "autopipe bisect FILE" not in passed.text
    assert "1 cases, 1 case with special values" in passed.text


def test_a_task_without_a_time_weighs_as_estimated():
    page = Page(build_page(full()))
    (add,) = (row for row in page.rows if row[:1] and row[0].startswith("addwhy"))
    assert add[4:7] == ["", "", " 25.0%"]


def test_times_are_those_of_tuning_where_nothing_was_profiled():
    page = Page(build_page(full().model_copy(update={"profile": None})))
    (kernel,) = (row for row in page.rows if row[:1] and row[0].startswith("demowhy"))
    assert kernel[4:7] == ["1 ms", "2 ms", " 75.0%"]


def test_shares_that_nothing_measured_are_called_estimates():
    tasks = tuple(
        task.model_copy(update={"seconds": None, "in_model": None}) for task in full().tasks
    )
    page = Page(build_page(full().model_copy(update={"profile": None, "tasks": tasks})))
    header = ["kernel", "calls", "engine", "implementation", "estimated share", "nodes"]
    assert header in page.rows
    assert "`autopipe report --profile` measures them" in page.text


def test_the_same_report_gives_the_same_bytes():
    first = build_page(full())
    assert first == build_page(RunReport.model_validate_json(full().text()))
    assert len(first.encode()) < 40_000


def test_no_curve_is_cut_however_long_it_is():
    calls = tuple(
        GraphCall(kernel="k", task=0, nodes=(), reads=(at - 1,) if at else ()) for at in range(500)
    )
    graph = KernelGraph(library="lib.so", function="main", calls=calls)
    points = tuple((float(at), 1.0 / (at + 1)) for at in range(500))
    curve = TuningCurve(engine="all", trials=500, failed=0, points=points)
    course = TuningCourse(ended="", seconds=1.0, curves=(curve,))
    page = Page(build_page(full().model_copy(update={"graphs": (graph,), "tuning": course})))
    counts = {
        value.count("M") + value.count("V") for value in page.values("d") if len(value) > 2000
    }
    assert counts == {499, 500, 501}
    assert not [value for value in page.values("d") if "..." in value]


def test_a_page_loads_nothing_and_runs_its_own_script_alone():
    text = build_page(full())
    page = Page(text)
    policy = page.values("content")[0]
    assert policy.startswith("default-src 'none'; ")
    for tag in ("style", "script"):
        (body,) = re.findall(f"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        digest = b64encode(sha256(body.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
        assert "http" not in body
        assert "url(" not in body
        assert "import" not in body
    names = {name for _, name, _ in page.attributes}
    assert not names & {"src", "srcset", "style", "action", "data"}
    assert not [name for name in names if name.startswith("on")]
    assert all(value.startswith("#") for value in page.values("href"))
    assert set(page.values("href")) <= {f"#{name}" for name in page.values("id")}


def test_tables_are_reached_by_keyboard_and_named():
    page = Page(build_page(full()))
    captions = [text for tag, text in page.texts if tag == "caption"]
    assert page.tags.count("table") == len(captions)
    drawn = "Graph of demo in lib.so: 3 kernel calls"
    assert page.values("tabindex") == ["0"] * (len(captions) + 1)
    labels = page.values("aria-label")
    assert sorted(labels) == sorted([*captions, "Sections", drawn])


def test_a_failure_comes_first():
    error = "conv: output is wrong\n  would pass with atol 1"
    stages = [stage.model_copy() for stage in full().stages]
    stages[1] = stages[1].model_copy(update={"state": "failed", "error": "wrong"})
    page = Page(build_page(full(exit_code=1, outcome="failed", error=error, stages=tuple(stages))))
    text = page.text
    assert text.index("failed in stage build, exit code 1") < text.index("Latency")
    assert ("pre", error) in page.texts


def test_a_run_that_did_not_get_far_is_a_page_too():
    empty = ("stages", "tasks", "graphs", "gates", "warnings", "inputs", "outputs")
    absent = ("tuning", "since", "profile", "package", "target", "machine", "configuration",
              "pipeline", "benchmark", "verification", "searched_share")  # fmt: skip
    nothing: dict[str, Any] = {
        **dict.fromkeys(empty, ()),
        **dict.fromkeys(absent),
        "versions": {},
        "sources": {},
    }
    report = full(**nothing)
    report = report.model_copy(update={"outcome": "failed", "exit_code": 2, "error": "no file"})
    page = Page(build_page(report))
    assert "no file" in page.text
    assert "section" in page.tags, "that some kernels' times are unsteady"
    assert (
        Page(build_page(report.model_copy(update={"steady_share": None}))).tags.count("section")
        == 0
    )


def test_several_builds_are_on_one_page():
    page = Page(build_page(full("one"), full("two", outcome="failed", exit_code=1, error="no")))
    ids = page.values("id")
    assert len(ids) == len(set(ids))
    assert set(page.values("href")) <= {f"#{name}" for name in ids}
    assert page.tags.count("article") == 2
    assert ["one", "finished", "41.2 s", "1 ms", "0.50", "onnxruntime"] in page.rows
    assert ["two", "failed", "41.2 s", "1 ms", "0.50", "onnxruntime"] in page.rows


def test_times_by_size_are_a_table():
    found = measurement()
    ours, theirs = found.ours.latency, found.competitors[0].latency
    at = SizedTimes(sizes={"batch": 8}, likely=True, ours=ours, competitors={"onnxruntime": theirs},
                    comparisons=found.comparisons)  # fmt: skip
    other = at.model_copy(update={"sizes": {"batch": 3}, "likely": False, "competitors": {}})
    page = Page(build_page(full(benchmark=found.model_copy(update={"at_sizes": (at, other)}))))
    assert ["batch = 8", "specialized", "1 ms", "2 ms", "0.50", "faster"] in page.rows
    assert ["batch = 3", "generic", "1 ms", "", "", ""] in page.rows


def test_transposes_that_are_left_have_a_table():
    rows = Page(build_page(full())).rows
    assert ["demo", "2", "1 ms", "75.0%", "with nodes of the model", "demo, demo"] in rows
    (first, second) = full().tasks
    added = (full().graphs[0].model_copy(update={"calls": (
        full().graphs[0].calls[0].model_copy(update={"added": True}),)}),)  # fmt: skip
    rows = Page(build_page(full(graphs=added))).rows
    assert "added where a layout changes" in [row[4] for row in rows if len(row) == 6]
    other = first.model_copy(update={"ops": ("permute_dims", "add")})
    assert "Transposes" not in build_page(full(tasks=(other, second)))


def test_curves_of_tuning_fall_from_the_first_times():
    text = build_page(full())
    page = Page(text)
    assert ["all", "9", "1", "4 ms", "2 ms", "2 s"] in [
        [cell.strip() for cell in row] for row in page.rows
    ]
    assert 'd="M0.00 2.00H100.00V98.00H100"' in text
    assert 'd="M0.00 2.00H100"' in text


def test_kernels_of_the_built_model_stand_beside_their_bound():
    text = build_page(full())
    rows = Page(text).rows
    first = ["demo", "2", "1 ms", "33.3%", "500 us", "2.00", "75.0%", "2 ms", "0.50"]
    unknown = ["demo", "1", "2 ms", "66.7%", "", "", "", "", ""]
    assert rows.index(unknown) + 1 == rows.index(first), "the slowest first"
    assert '<td><a href="#kernel-0">demo</a></td>' in text


def test_what_changed_since_the_last_build():
    rows = Page(build_page(full())).rows
    assert rows.count(["tune", "demo"]) == 2
    assert ["demo", "demo", "gone", "1 ms", "", ""] in rows
    assert ["add", "new", "static on direct", "", "2 ms", ""] in rows
    assert ["add", "ansor on direct", "static on direct", "1 ms", "2 ms", "2.00"] in rows
    nothing = SinceLastBuild(stages={}, tasks=())
    assert "it is the build of the last run" in build_page(full(since=nothing))


def test_a_box_leads_to_its_kernel_and_is_coloured_by_its_time():
    text = build_page(full())
    boxes = re.findall(r'<(a|g) class="(heat[^"]*)"(?: href="(#kernel-[0-9]+)")?><title>', text)
    assert boxes == [
        ("a", "heat4", "#kernel-0"), ("a", "heat3 added", "#kernel-1"), ("g", "heat0", ""),
    ]  # fmt: skip
    assert Page(text).text.count("37.5%  demo") == 1, "a call of two has half of its kernel's time"


@pytest.mark.fault("E12")
@each_row("name", NAMES)
def test_any_name_is_text_and_nothing_else(name):
    text = build_page(full(name), full(name, outcome="failed", exit_code=1, error=name))
    text.encode()
    others = build_page(full(), full(outcome="failed", exit_code=1, error="demo"))
    page, other = Page(text), Page(others)
    assert page.tags == other.tags
    assert [one[:2] for one in page.attributes] == [one[:2] for one in other.attributes]
    assert page.values("href") == other.values("href")
    assert page.values("id") == other.values("id")
    controls = {c for c in text if unicodedata.category(c) in {"Cc", "Cf", "Cs", "Co", "Cn"}}
    assert controls <= {"\n"}
    assert len(text) < 300_000


def test_many_kernels_stay_small():
    tasks = tuple(
        TaskReport(name=f"fused_conv2d_add_relu{at}", workload=f"{at:016x}", calls=1,
                   engine="ansor", implementation="direct", seconds=1e-4, reason="best record",
                   share=0.005, nodes=(f"Conv_{at}", f"Relu_{at}"), computes=("x" * 200,) * 4,
                   schedule=("y" * 100,) * 20)
        for at in range(200)
    )  # fmt: skip
    assert len(build_page(full(tasks=tasks)).encode()) < 1_000_000
