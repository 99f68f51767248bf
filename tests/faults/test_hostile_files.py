"""Files that somebody wrote on purpose: sealed as ours are, with a field that nobody of us writes.

Each ends in a line and a documented exit code, or costs the line or the entry that it is; what
would be printed forges no line of a log.
"""

import json
import re
import resource
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from autopipe.api.shapes import SHAPES
from autopipe.artifacts.tuning import ListedFailure, TuningResult
from autopipe.benchmarking import baseline
from autopipe.cli.terminal import print_error, print_lines
from autopipe.comparison import reading
from autopipe.comparison.difference import compare_builds
from autopipe.comparison.text import list_lines as told_lines
from autopipe.errors import AutopipeError, PackageError
from autopipe.lock import records as beside
from autopipe.lock import text as lock_text
from autopipe.lock.file import read_text
from autopipe.lock.outline import _lock_task as locked_task
from autopipe.packaging.examine import examine_package
from autopipe.pipeline import attempt
from autopipe.records import autotvm, lines, metaschedule
from autopipe.records.importing import import_records
from autopipe.records.left_out import LeftOut
from autopipe.records.merge import add_seeds
from autopipe.records.session import Session
from autopipe.records.store import RecordStore
from autopipe.remote import entry as remote_entry
from autopipe.remote.courier import DamagedError
from autopipe.remote.transfer import _inspect_artifact
from autopipe.report.escape import escape_output_line
from autopipe.store import entry
from autopipe.store.canonical import digest_json, seal_document
from autopipe.store.content import TreeFile, digest_tree
from tests.artifacts.examples import (
    best_record,
    checked_case,
    comparison,
    imported,
    library,
    library_task,
    tuned_task,
    tuning_report,
    verification,
)
from tests.faults.hostile import texts, variants
from tests.faults.mutations import deadline
from tests.lock.test_records import task as some_task
from tests.packaging.packages import changed, make
from tests.records.test_autotvm import CONV
from tests.records.test_lines import found

GOLDEN = Path(__file__).parents[1] / "golden" / "v0.1"
COUNT = 60
SECONDS = 30
MEMORY = 250 << 20

pytestmark = pytest.mark.fault("K7")


@pytest.fixture(autouse=True)
def modest() -> Iterator[None]:
    """See that nothing that is read takes memory of another order than a file has."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert grown < MEMORY


def harmless(text: str) -> bool:
    """Return whether a text, once printed, obeys nobody."""
    rows = text.split("\n")
    return all(row.isprintable() for row in rows) and not re.search(
        r"^\s*::|##\[", text, re.MULTILINE
    )


def ends(work: Callable[[], object], capsys: pytest.CaptureFixture[str], codes: set[int]) -> int:
    """Return how a command would end that does this work; see what it would say."""
    refused: AutopipeError | None = None
    try:
        with deadline(SECONDS):
            work()
    except AutopipeError as error:
        refused = error
    if refused is None:
        return 0
    assert refused.exit_code in codes, str(refused)[:500]
    assert "::error ::owned" not in str(refused).split("\n")
    print_error(f"error: {refused}")
    said = capsys.readouterr().err
    assert harmless(said), said[:500]
    assert len(said) < 20_000
    return refused.exit_code


def line(content: dict[str, Any]) -> str:
    """Write a line of an export with the checksum that fits it."""
    content = {name: value for name, value in content.items() if name != "checksum"}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    content["checksum"] = sha256(text.encode()).hexdigest()
    return json.dumps(content)


@pytest.mark.fault("K1")
def test_a_bad_line_of_an_import_costs_itself(tmp_path):
    """Types that are wrong, with a checksum that is right; and what is no JSON."""
    good = json.loads(lines.write([found((1.0,))]))
    bad = [line(each) for each in variants(good, 300)]
    bad += [text for text in texts(good) if text]
    for name, value in (("cut", 2**70), ("workload", "\udc80"), ("engine", [1])):
        bad.append(line({**good, name: value}))
    path = tmp_path / "records.jsonl"
    path.write_text("\n".join([*bad, lines.write([found((2.0,))])]), encoding="utf-8")
    with RecordStore.open(tmp_path / "records.sqlite", pytest.fail) as store, deadline(SECONDS):
        brought = import_records(store, path, None)
        assert 2.0 in [each.record.median for each in store.every()]
        for each in store.every():
            assert lines.write([each])
    assert sum(brought.left_out.values()) > len(bad) / 2
    assert len(brought.left_out) <= 22
    assert all(map(harmless, brought.left_out))


def test_a_log_of_autotvm_costs_its_bad_lines(tmp_path):
    good = json.loads(CONV)
    bad = [json.dumps(each) for each in variants(good, 300)] + list(texts(good))
    log = autotvm.read(each.encode("utf-8", "surrogatepass") for each in [*bad, CONV])
    assert log.seeds
    assert all(map(harmless, log.left_out))
    assert len(log.left_out) <= 22
    with RecordStore.open(tmp_path / "records.sqlite", pytest.fail) as store:
        assert add_seeds(store, log.seeds).added


def test_a_database_of_metaschedule_costs_its_bad_lines(tmp_path):
    target = {"kind": "llvm", "mcpu": "x"}
    good = [0, [[[["Split", ["l"], [1], ["a"]]], []], [1e-3], target, []]]
    bad = [json.dumps(each) for each in variants(good, 300)] + list(texts(good))
    path = tmp_path / metaschedule.TRIALS
    path.write_text("\n".join([*bad, json.dumps(good)]), encoding="utf-8")
    left_out = LeftOut()
    trials = metaschedule._read_fastest_trials(path, 1, target, left_out)
    assert trials[0]
    assert all(harmless(escape_output_line(each, 1000)) for each in left_out.counts())
    packed = ["1", "eA=="]
    bad = [json.dumps(each) for each in variants(packed, 100)] + list(texts(packed))
    path.write_text("\n".join(bad), encoding="utf-8")
    assert len(metaschedule._read_modules(path)) == len(bad)


ACTION = {"stage": "tune", "version": 1, "inputs": {"tasks": "ab" * 32}}
FILES = [{"name": "sub/a", "size": 3, "sha256": "a" * 64}]


def action(content: Any) -> bytes:
    """Seal an entry, with the digest of the files that it names where there can be one."""
    if not isinstance(content, dict):
        return seal_document({"content": content})
    try:
        listed = tuple(TreeFile(**each) for each in content["files"])
        content = {**content, "digest": digest_tree(listed)}
    except (TypeError, LookupError, ValueError, AttributeError):
        pass
    return seal_document(content)


@pytest.mark.fault("K3")
def test_what_a_remote_says_of_an_action_is_bounded(tmp_path, capsys):
    good = {"action": ACTION, "kind": "records", "digest": "", "files": FILES}
    assert remote_entry.parse_entry(digest_json(ACTION), action(good)).size == 3
    counts: Counter[int] = Counter()
    large = [{**good, "files": [{**FILES[0], "size": n}]} for n in (10**400, 4 * 10**12, 2**62)]
    many = [{"name": f"{n:06}", "size": 1, "sha256": "a" * 64} for n in range(30_000)]
    deep = [{**FILES[0], "name": "a/" * 400 + "b"}]
    made = [*variants(good, 200), *large, {**good, "files": many}, {**good, "files": deep}]
    for number, content in enumerate(made):
        data = action(content)
        key = digest_json(ACTION)

        def work(key=key, data=data):
            known = remote_entry.parse_entry(key, data)
            assert known.size <= 2**38

        counts[ends(work, capsys, {5})] += 1
        if number >= len(made) - 5:
            assert ends(work, capsys, {5}) == 5
    for text in texts(good):
        read = partial(remote_entry.parse_entry, digest_json(ACTION), text.encode())
        assert ends(read, capsys, {5}) == 5
    assert counts[5] > 100


def test_a_store_that_somebody_else_filled_names_no_other_folder(tmp_path, capsys):
    good = {"action": ACTION, "kind": "records", "digest": "", "files": FILES}
    path = tmp_path / "action.json"
    for content in variants(good, 200):
        for data in (action(content), seal_document(content)):
            path.write_bytes(data)

            def work():
                known = entry.read_entry(path, digest_json(ACTION))
                assert known is not None
                assert re.fullmatch("[0-9a-f]{64}", known.digest)
                assert isinstance(known.action["stage"], str)
                assert isinstance(known.size, int)

            ends(work, capsys, {5})


PORT = {"name": "x", "shape": (1,), "dtype": "float32"}
FAILURE = ListedFailure(
    engine="e", implementation="i", doing="planning", how="it hung", retried=True, folder="f"
)
BUILT = library(
    library_task("t", "ab", failures=(FAILURE,)), inputs=(PORT,), weights=("w",),
    claimed={"searched": 0.5, "measured": 1.0, "steady": 1.0},
)  # fmt: skip
TUNED = tuning_report(tuned_task(0, "aa", failures=(FAILURE,)))
IMPORTED = imported(inputs=(PORT,), weights=("w",), selects={"x": 3})
CASE = checked_case("c", comparison())
MODULE = {"nodes": [], "root_index": 0, "b64ndarrays": []}

ARTIFACTS: dict[str, tuple[str, Any, dict[str, Any]]] = {
    "import": (
        "model.json",
        IMPORTED.model_dump(mode="json"),
        {"module.json": MODULE, "weights.safetensors": 1, "nodes.json": {"nodes": []}},
    ),
    "lower": ("module.json", MODULE, {}),
    "tasks": (
        "tasks.json",
        [some_task(0, "ab").model_dump(mode="json")],
        {"workloads/ab.json": MODULE},
    ),
    "tune": ("tuning.json", TUNED.document(), {"records.jsonl": best_record("aa").document()}),
    "build": (
        "library.json",
        BUILT.model_dump(mode="json"),
        {"lib.so": 1, "weights.safetensors": 1, "nodes.json": {"nodes": [], "libraries": []}},
    ),
    "verify": ("verify.json", verification(CASE).model_dump(mode="json"), {}),
}


REFUSED: dict[str, list[dict[str, Any]]] = {
    "import": [
        {"selects": {"x": -1}}, {"promises": {"error_floors": {"y": -1.0}}},
        {"promises": {"exact_cases": ["all"]}}, {"weights": "w"}, {"inputs": [{"name": "x"}]},
    ],
    "lower": [{"nodes": 1, "root_index": None}],
    "tune": [{"tasks": [{**tuned_task(0, "aa").document(), "failures": [{}]}]}],
    "build": [{"claimed": {"steady": "all"}}, {"versions": {"tvm": 1}}, {"tasks": [{"name": "t"}]}],
    "verify": [{"cases": [{**CASE.model_dump(), "outputs": [{}]}]}],
}  # fmt: skip
"""What later stages would fail of."""


@pytest.mark.fault("K3")
@pytest.mark.parametrize("stage", ARTIFACTS)
def test_an_artifact_of_a_remote_has_the_shape_that_its_stage_leaves(tmp_path, capsys, stage):
    name, good, others = ARTIFACTS[stage]
    for other, content in others.items():
        (tmp_path / other).parent.mkdir(exist_ok=True)
        (tmp_path / other).write_text(json.dumps(content, sort_keys=True))
    said = SimpleNamespace(action={"stage": stage}, digest="ab" * 32)
    document = tmp_path / name
    document.write_text(json.dumps(good))
    _inspect_artifact(tmp_path, said, SHAPES)  # type: ignore[arg-type]
    counts: Counter[int] = Counter()
    for wrong in REFUSED.get(stage, ()):
        document.write_text(json.dumps({**good, **wrong}))
        assert ends(lambda: _inspect_artifact(tmp_path, said, SHAPES), capsys, {5}) == 5  # type: ignore[arg-type]
    whole = [{"evil": good}, [], None, *variants(good, COUNT)]
    for text in [*map(json.dumps, whole), *texts(good)]:
        document.write_text(text, encoding="utf-8")
        code = ends(lambda: _inspect_artifact(tmp_path, said, SHAPES), capsys, {5})  # type: ignore[arg-type]
        counts[code] += 1
        if stage == "tune" and not code:
            tuned = TuningResult.read(tmp_path)
            assert (
                beside.read_records(beside.format_records(tuned), document).report.tasks
                == tuned.report.tasks
            )
    assert counts[5] >= (8 if stage == "lower" else 25)
    document.unlink()
    with pytest.raises(DamagedError):
        _inspect_artifact(tmp_path, said, SHAPES)  # type: ignore[arg-type]


@pytest.mark.fault("K4")
def test_records_beside_a_lock_are_read_or_refused_with_the_line(tmp_path, capsys):
    golden = (GOLDEN / "tiny.records.jsonl").read_text()
    head, *rest = map(json.loads, golden.splitlines())
    path = tmp_path / "tiny.records.jsonl"
    counts: Counter[int] = Counter()
    place = next(n for n, each in enumerate(rest) if each["record"])
    begin, *before = map(json.dumps, [head, *rest[:place]])
    behind = list(map(json.dumps, rest[place + 1 :]))

    def made() -> Iterator[list[str]]:
        for each in variants(head, 20):
            yield [json.dumps(each), *map(json.dumps, rest)]
        for text in [*map(json.dumps, variants(rest[place], 200)), *texts(rest[place])]:
            yield [begin, *before, text, *behind]

    tasks = (some_task(0, "ab"),)

    def work() -> None:
        tuned = beside.read_records(read_text(path), path)
        assert all(map(harmless, beside.list_task_mismatches(tuned, tasks)))
        folder = tmp_path / "artifact"
        folder.mkdir(exist_ok=True)
        tuned.write(folder)
        for task in tuned.report.tasks:
            locked_task(library_task(task.name, task.workload), {task.name: ()}, tuned)

    for each in made():
        path.write_text("".join(f"{text}\n" for text in each), encoding="utf-8")
        counts[ends(work, capsys, {6})] += 1
    assert counts[6] > 100
    path.write_text(json.dumps(head) + "\n" + json.dumps(rest[place]).replace("e-0", "e999-0"))
    path.write_text(re.sub(r'("seconds": )\[[^]]*\]', r"\1[NaN]", path.read_text()))
    assert ends(work, capsys, {6}) == 6


def sealed(document: dict[str, Any]) -> str:
    body = "".join(f"{each}\n" for each in lock_text._format_block(document, ""))
    return f"{body}# sha256: {sha256(body.encode()).hexdigest()}\n"


@pytest.mark.fault("K4")
def test_a_sealed_lock_is_read_or_refused_and_compared_in_harmless_lines(tmp_path, capsys):
    good = lock_text.parse_lock((GOLDEN / "tiny.lock").read_text(), GOLDEN / "tiny.lock")
    document = good.model_dump(mode="json")
    first, path = reading.read_build(GOLDEN / "tiny.lock"), tmp_path / "tiny.lock"
    counts: Counter[int] = Counter()
    for content in variants(document, COUNT):
        try:
            text = sealed(content)
        except (IndexError, AttributeError, TypeError):  # nothing that a lock can be written of
            continue
        path.write_text(text, encoding="utf-8")

        def work():
            print_lines(told_lines(compare_builds(first, reading.read_build(path))))
            told = capsys.readouterr().out
            assert harmless(told), told

        counts[ends(work, capsys, {2, 6})] += 1
    assert counts[6] > 15
    assert counts[0] > 5


@pytest.mark.fault("K4")
def test_a_report_is_read_or_refused_and_compared_in_harmless_lines(tmp_path, capsys):
    golden, path = GOLDEN / "tiny.report.json", tmp_path / "tiny.report.json"
    good, first = json.loads(golden.read_text()), reading.read_build(golden)
    counts: Counter[int] = Counter()
    for text in [*map(json.dumps, variants(good, 3 * COUNT)), *texts(good)]:
        path.write_text(text, encoding="utf-8")

        def work():
            print_lines(told_lines(compare_builds(first, reading.read_build(path))))
            told = capsys.readouterr().out
            assert harmless(told), told

        counts[ends(work, capsys, {2})] += 1
    assert min(counts[0], counts[2]) > 25


@pytest.mark.fault("K5")
def test_a_package_is_read_or_refused_with_its_digests_made_again(tmp_path, capsys):
    package = make(tmp_path / "made")
    examine_package(package)
    counts: Counter[int] = Counter()
    good = manifest(package)
    for number, content in enumerate(variants(good, COUNT)):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "demo.tar").symlink_to(package)
        try:
            written = changed(folder / "demo.tar", manifest=replacing(content))
        except (TypeError, AttributeError, KeyError):
            continue
        counts[ends(lambda: examine_package(written), capsys, {3})] += 1  # noqa: B023
    assert counts[3] > 50


def manifest(package: Path) -> dict[str, Any]:
    from autopipe.packaging.contents import opened

    with opened(package) as contents:
        return json.loads(contents.read("manifest.json"))


def replacing(content: Any) -> Callable[[dict[str, Any]], None]:
    def edit(document: dict[str, Any]) -> None:
        document.clear()
        document.update(content)

    return edit


@pytest.mark.fault("K5")
def test_a_component_list_is_read_or_refused(tmp_path, capsys):
    from autopipe.packaging import components, provenance
    from autopipe.packaging.contents import opened

    package = make(tmp_path)
    with opened(package) as contents:
        good = json.loads(contents.read("components.cdx.json"))
        statement = provenance.parse_manifest(contents.read("manifest.json"))
    assert isinstance(statement, provenance.Statement)
    texts_ = [*map(json.dumps, variants(good, COUNT)), *texts(good)]
    counts = Counter(
        ends(lambda: components.check_components(text.encode(), statement), capsys, {3})  # noqa: B023
        for text in texts_
    )
    assert counts[3] > 25


@pytest.mark.fault("K5")
def test_opening_compares_the_component_list_as_verifying_does(tmp_path, monkeypatch):
    from autopipe.packaging import open as opening

    def drop(document):
        document["components"].pop()

    package = make(tmp_path)
    with opened_list(package) as document:
        drop(document)
    made = changed(package, components=json.dumps(document).encode())
    for name in ("check_runtime", "_check_processor"):
        monkeypatch.setattr(opening, name, lambda _: None)
    monkeypatch.setattr(opening, "load_model", pytest.fail)
    for read in (examine_package, opening.open_package, reading.read_build):
        with pytest.raises(PackageError, match="and the manifest differ in"):
            read(made)


class opened_list:  # noqa: N801 -- read as a function
    """The component list of a package, to be changed."""

    def __init__(self, package: Path) -> None:
        from autopipe.packaging.contents import opened

        with opened(package) as contents:
            self.document = json.loads(contents.read("components.cdx.json"))

    def __enter__(self) -> dict[str, Any]:
        return self.document

    def __exit__(self, *_: object) -> None: ...


@pytest.mark.fault("K6")
def test_a_baseline_is_read_or_refused(tmp_path, capsys):
    good = json.loads((GOLDEN / "tiny.baseline.json").read_text())
    path = tmp_path / "tiny.baseline.json"
    texts_ = [*map(json.dumps, variants(good, 2 * COUNT)), *texts(good)]
    counts: Counter[int] = Counter()
    for text in texts_:
        path.write_text(text, encoding="utf-8")
        counts[ends(lambda: baseline.read_baseline(path, "tiny"), capsys, {2})] += 1
    assert counts[2] > 50


@pytest.mark.fault("K6")
@pytest.mark.parametrize(
    "text",
    [
        "root:x:0:0:secret:/root:/bin/sh\n", '{"token": "secret"}', "secret: secret\nsecret: 1\n",
        '{"secret": 1, "secret": 2}', "-----BEGIN PRIVATE KEY-----\nsecret\n", "\tsecret",
    ],
)  # fmt: skip
def test_a_file_that_is_no_baseline_is_not_quoted(tmp_path, text):
    path = tmp_path / "somebody's"
    path.write_text(text)
    with pytest.raises(AutopipeError, match="no baseline") as caught:
        baseline.read_baseline(path, "tiny")
    assert "secret" not in str(caught.value).removeprefix(str(path))


@pytest.mark.parametrize("name", ["session.json", "failed"])
def test_notes_of_an_attempt_are_taken_or_left(tmp_path, name):
    good = {
        "session": "ab", "seconds": 1.5, "trials": 3, "budget": 9, "key": "k", "error": "e",
        "exit_code": 4, "when": "today",
    }  # fmt: skip
    for text in [*map(json.dumps, variants(good, 200)), *texts(good)]:
        path = tmp_path / "session.json"
        path.write_text(text, encoding="utf-8")
        note = attempt._read_note(path)
        if name == "failed":
            assert attempt._format_error_line(note).isprintable()
            continue
        assert (attempt.describe_spent_budget(tmp_path) or "").isprintable()
        session = Session.resume(tmp_path, 9)
        assert session.elapsed >= 0
        assert len(session.name) <= 64
        assert session.name.replace("-", "").isalnum()
        session.save()
