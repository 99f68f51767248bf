"""A difference written down: nothing in it is more than text, and nothing is too long."""

import json
from unicodedata import category

import pytest
from markdown_it import MarkdownIt

from autopipe.comparison import comment, document, markdown, page, text
from autopipe.comparison.build import Build
from autopipe.comparison.difference import compare_builds
from autopipe.comparison.excerpt import cut_alike
from autopipe.lock.recognize import FileKind
from autopipe.report.document import StageReport
from autopipe.store.canonical import pretty
from tests.artifacts.examples import checked_case, comparison, verification
from tests.comparison.builds import KNOBS, build, latency, task
from tests.report.names import NAMES
from tests.report.pages import Page
from tests.report.reports import full
from tests.support.table import each_row

GITHUB = MarkdownIt("commonmark").enable(["table", "strikethrough"])


def pair(name: str = "name") -> tuple[Build, Build]:
    """Two builds that differ in everything, with a name of your choice everywhere."""
    topics = ("outcome", "configuration", "target", "versions", "sources", "accuracy", "artifacts")
    old = build(
        {topic: {name: name, "z": "0"} for topic in topics} | {"size": {name: 1000}},
        (task(name, "1"), task("gone" + name, "2"), task("same", "3")),
        latency=latency(3.0),
        pipeline=name,
        file=name,
    )
    schedule = {**KNOBS, "knobs": {name: 16}}
    new = build(
        {topic: {name: f"{name}!", "z": "0"} for topic in topics} | {"size": {name: 1100}},
        (task(name, "1", schedule=schedule), task("come" + name, "4"), task("same", "3")),
        latency=latency(1.0),
        pipeline=name,
        file=name,
    )
    return old, new


TEXT = """\
old: name (lock of name)
new: name (lock of name)

outcome: 1 changed
  name: name -> name!

configuration: 1 changed
  name: name -> name!

target: 1 changed
  name: name -> name!

versions: 1 changed
  name: name -> name!

sources: 1 changed
  name: name -> name!

tasks: 1 added, 1 removed, 1 changed, 1 the same; times as tuning measured them
  name
    schedule.knobs.name: - -> 16
    schedule.knobs.outer: columns -> -
    schedule.knobs.rows: 8 -> -
    time: 1 ms (900 us to 1.1 ms) -> 1 ms (900 us to 1.1 ms), within the noise
  comename
    added: - -> autotvm on direct, 1 ms (900 us to 1.1 ms)
  gonename
    removed: autotvm on direct, 1 ms (900 us to 1.1 ms) -> -

size: 1 changed
  name: 1,000 bytes -> 1,100 bytes, +10.0%

latency: median of a run, and its spread
  autopipe: 3 s (2.7 to 3.3) -> 1 s (900 ms to 1.1 s), faster
  onnxruntime: 2 s (1.8 to 2.2) -> 2 s (1.8 to 2.2), within the noise

accuracy: 1 changed
  name: name -> name!

artifacts: 1 changed
  name: name -> name!
"""


def test_text_for_people():
    assert "\n".join(text.list_lines(compare_builds(*pair()))).rstrip() == TEXT.rstrip()


def test_what_is_the_same_is_told_too():
    old = build({"target": {"a": 1}, "versions": {"b": 1}}, (task(),), latency=latency(3))
    found = compare_builds(old, build({**old.facts, "size": {"x": 1}}, old.tasks))
    assert list(text.list_lines(found))[3:] == [
        "no differences",
        "the same: target, versions, tasks (1 the same)",
        "not compared: size (only the new one says it), latency (only the old one says",
        "  it)",
    ]
    assert "**" not in markdown.format_difference(found)
    assert "### `demo`: no differences" in markdown.format_difference(found)


def test_another_template_is_told_in_a_line():
    other = {"template": "window", "version": 1, "knobs": {"width": 4, "rows": True}}
    found = compare_builds(build(tasks=(task(),)), build(tasks=(task(schedule=other),)))
    told = list(text.list_lines(found))
    assert "    schedule:" in told
    assert "         contraction rows=8 outer=columns, version 2" in told
    assert "      -> window width=4 rows=true, version 1" in told


def test_values_that_look_alike_are_written_out():
    old = build({"sources": {"a": "0" * 64}, "accuracy": {"b": 0.1}})
    new = build({"sources": {"a": "0" * 63 + "1"}, "accuracy": {"b": 0.1000000001}})
    told = "\n".join(text.list_lines(compare_builds(old, new)))
    assert f'"{"0" * 63}1"' in told
    assert "b: 0.1 -> 0.1000000001" in told


@pytest.mark.fault("E13")
@each_row("name", NAMES)
def test_text_stays_within_its_columns(name):
    old, new = pair(name)
    for number, line in enumerate(text.list_lines(compare_builds(old, new))):
        assert len(line) <= 80 or number < 2, "paths are shown whole"
        assert not any(category(char) in {"Cc", "Cf", "Cs"} for char in line)


def tokens(page: str) -> list[str]:
    return [
        inner.type for token in GITHUB.parse(page) for inner in (token, *(token.children or ()))
    ]


def commented(difference):
    """A comment of a run with the names of its new build."""
    return comment.format_comment(difference, full(difference.new.pipeline))


@pytest.mark.fault("E12")
@pytest.mark.parametrize("write", [markdown.format_difference, commented])
@each_row("name", NAMES)
def test_in_markdown_any_name_is_code_and_nothing_else(name, write):
    page = write(compare_builds(*pair(name)))
    page.encode()
    plain = write(compare_builds(*pair()))
    known = {"code_inline", "text"}
    assert [t for t in tokens(page) if t not in known] == [
        t for t in tokens(plain) if t not in known
    ]
    assert tokens(page).count("code_inline") == tokens(plain).count("code_inline")


def test_markdown_has_a_row_for_each_change():
    page = markdown.format_difference(compare_builds(*pair()))
    assert page.startswith("### `name`: what changed\n\n`name` (lock) → `name` (lock)\n")
    rows = [line for line in page.splitlines() if line.startswith("|")]
    assert "| `name` | `1,000 bytes` | `1,100 bytes` | +10.0% |" in rows
    assert "| `name` | `schedule.knobs.name` | `-` | `16` |  |" in rows
    assert "|  | `schedule.knobs.outer` | `columns` | `-` |  |" in rows
    assert "| `autopipe` | `3 s (2.7 to 3.3)` | `1 s (900 ms to 1.1 s)` | faster |" in rows


@pytest.mark.parametrize("name", ["n", "n|`<" * 100, "名" * 200])
def test_a_long_page_is_cut_to_what_github_takes(name):
    many = {f"{name}{place}": place for place in range(5000)}
    tasks = tuple(task(f"{name}{place}", f"{place:x}") for place in range(5000))
    old = build({"configuration": {}, "target": {"few": 1}}, ())
    found = compare_builds(old, build({"configuration": many, "target": {"few": 2}}, tasks))
    page = markdown.format_difference(found)
    assert markdown.LIMIT * 0.9 < len(page.encode()) <= markdown.LIMIT
    assert "| `few` | `1` | `2` |  |" in page
    left = [line for line in page.splitlines() if line.startswith("…")]
    shown = page.count("\n| `") - 1
    assert left == [f"… and {5000 - shown // 2} more of 5000; `autopipe diff` shows all."] * 2
    assert len(markdown.format_difference(found, 1 << 30).encode()) > markdown.LIMIT


def test_a_page_that_fits_is_not_cut():
    found = compare_builds(*pair())
    whole = markdown.format_difference(found)
    assert markdown.format_difference(found, len(whole.encode())) == whole
    assert "more of" in markdown.format_difference(found, len(whole.encode()) - 1)


def test_json_has_everything_uncut():
    name = "\x1b`" + "x" * 1000
    written = document.format_json(compare_builds(*pair(name)))
    assert written.isascii()
    found = json.loads(written)
    assert written == pretty(found)
    assert (found["version"], found["same"]) == (1, False)
    assert found["old"] == {"file": name, "kind": "lock", "pipeline": name}
    assert found["configuration"] == [{"name": name, "old": name, "new": f"{name}!"}]
    changed, added, removed = found["tasks"]
    assert (changed["state"], added["state"], removed["state"]) == ("changed", "added", "removed")
    assert {"name": "schedule.knobs.rows", "old": 8} in changed["changes"]
    assert changed["verdict"] == "NOISE"
    assert added["seconds"]["old"] is None
    assert added["seconds"]["new"].keys() == {"median", "low", "high"}
    assert [row["verdict"] for row in found["latency"]] == ["FASTER", "NOISE"]
    assert found["latency"][1]["versions"] == ["1.31", "1.31"]


def test_json_says_what_was_not_compared():
    found = json.loads(
        document.format_json(compare_builds(build(), build({"size": {}}, kind=FileKind.PACKAGE)))
    )
    assert (found["same"], found["tasks"], found["latency"]) == (True, None, None)
    assert "size" not in found
    assert found["not_compared"]["size"] == "only the new one says it"


@pytest.mark.parametrize(("old", "new"), [("a" * 500 + "b", "a" * 500 + "c"), ("x", "y" * 500)])
def test_a_difference_is_seen_wherever_it_is(old, new):
    before, after = cut_alike(old, new, 40)
    assert before != after
    assert max(len(before), len(after)) <= 40


def test_what_is_cut_is_the_same():
    assert cut_alike("a" * 100 + "1" + "b" * 100, "a" * 100 + "2" + "b" * 100, 40) == (
        "...aaaaaaaaaaaa1bbbbbbbbbbbb...", "...aaaaaaaaaaaa2bbbbbbbbbbbb...",
    )  # fmt: skip
    assert cut_alike("same start, 1", "same start, 2", 40) == ("same start, 1", "same start, 2")


def test_a_page_has_all_kernels_side_by_side():
    made = Page(page.format_page(compare_builds(*pair())))
    changed, come, same, gone = (row for row in made.rows if len(row) == 8 and row[0] != "kernel")
    assert changed[0].startswith("nameschedule.knobs")
    knobs = ("name", "outer", "rows")
    assert changed[1:] == [
        "autotvm on direct", "autotvm on direct", "1 ms (900 us to 1.1 ms)",
        "1 ms (900 us to 1.1 ms)", "1.00", "within the noise",
        ", ".join(f"schedule.knobs.{knob}" for knob in knobs),
    ]  # fmt: skip
    assert (come[1], come[3], come[7]) == ("-", "", "added")
    assert (gone[2], gone[4], gone[7]) == ("-", "", "removed")
    assert (same[0], same[7]) == ("same", "")
    assert made.values("class").count("changed") == 4, "three kernels and the latency"
    assert ["autopipe", "1", "3 s (2.7 to 3.3)", "1 s (900 ms to 1.1 s)", "0.33", "faster"] in (
        made.rows
    )
    assert ["name", "1,000 bytes", "1,100 bytes", "+10.0%"] in made.rows
    (title,) = (told for tag, told in made.texts if tag == "h1")
    assert title == "name: what changed"


def test_a_page_without_differences_says_so():
    made = Page(page.format_page(compare_builds(build(), build())))
    assert "demo: no differences" in made.text
    assert "section" not in made.tags


@pytest.mark.fault("E12")
@each_row("name", NAMES)
def test_any_name_is_text_in_a_page(name):
    made, other = (
        Page(page.format_page(compare_builds(*pair(name)))),
        Page(page.format_page(compare_builds(*pair()))),
    )
    assert made.tags == other.tags
    assert [one[:2] for one in made.attributes] == [one[:2] for one in other.attributes]


COMMENT = """\
### `name`: run finished, lock changed

|  |  |
| --- | --- |
| latency | 1 ms (995 us to 1.01 ms), 0.50 of `onnxruntime 1.31` (faster) |
| size | 1.0 MiB |
| accuracy | `equal to name 1.31.1 on 2 cases, 0.00% of the allowed error used` |
| `gates.regression` | passed: `as fast` |
| `gates.a` | failed: `name` |
| `gates.b` | inconclusive: `name` |
| warnings | 1, in the summary of the job |

**What changed in the lock**

- outcome: `name` is `name!`, was `name`
- configuration: `name` is `name!`, was `name`
- target: `name` is `name!`, was `name`
- versions: `name` is `name!`, was `name`
- sources: `name` is `name!`, was `name`
- tasks: 1 with another schedule: `name`
- tasks: 1 new: `comename`
- tasks: 1 gone: `gonename`
- size: `name` is `1,100 bytes`, was `1,000 bytes` (+10.0%)
- latency: `autopipe` is `1 s (900 ms to 1.1 s)`, was `3 s (2.7 to 3.3)` (faster)
- latency: `onnxruntime` is `2 s (1.8 to 2.2)`, was `2 s (1.8 to 2.2)` (within the noise)
- accuracy: `name` is `name!`, was `name`
- artifacts: `name` is `name!`, was `name`
"""


def test_a_comment_says_in_words_what_came_of_a_change():
    assert commented(compare_builds(*pair())).rstrip() == COMMENT.rstrip()


def test_a_comment_on_a_run_that_failed_begins_with_why():
    run = full().model_copy(
        update={"outcome": "failed", "exit_code": 1, "error": "`it` is wrong", "benchmark": None,
                "verification": None, "package": None, "gates": (), "warnings": ()}
    )  # fmt: skip
    same = compare_builds(*[pair()[0]] * 2)
    told = comment.format_comment(same, run)
    assert told.startswith("### `name`: run failed with exit code 1\n\n```\n`it` is wrong\n```\n")
    assert "| latency | not measured by this run |\n| size | no package |\n" in told
    assert "What changed" not in told
    assert comment.format_comment(same).startswith("### `name`: the lock unchanged\n")


def test_a_build_that_fails_is_wrong_whatever_was_compared():
    wrong = verification(checked_case("large", comparison(failure="off")), failure="y is off")
    stage = StageReport(stage="verify", state="failed", error="y is off")
    run = full("name", stages=(stage,), exit_code=1, error="y is off", verification=wrong)
    assert "| accuracy | **wrong**, as above |" in comment.format_comment(
        compare_builds(build(), build()), run
    )
    assert wrong.summary() == "y is off"


def test_a_comment_groups_tasks_by_what_became_of_them():
    old = build(tasks=tuple(task(f"t{at}", f"{at}") for at in range(30)))
    new = build(tasks=tuple(task(f"t{at}", f"{at}", engine="ansor") for at in range(30)))
    (line,) = [
        one
        for one in comment.format_comment(compare_builds(old, new)).splitlines()
        if "tasks:" in one
    ]
    assert line.startswith("- tasks: 30 with another schedule: `t0` (`autotvm` → `ansor`), `t1`")
    assert line.endswith("`t19` (`autotvm` → `ansor`), and 10 more")
    facts = build({"target": {f"f{at}": at for at in range(30)}})
    told = comment.format_comment(compare_builds(build({"target": {"gone": 1}}), facts))
    assert "- target: `f0` is new: `0`\n" in told
    assert "- target: and 11 more\n" in told
