"""`autopipe records`, from the command line."""

import json
import subprocess
import sys

import pytest

from autopipe.records import lines
from autopipe.records.about import WorkloadInfo
from autopipe.records.store import RecordDetails, RecordStore
from tests.records.test_autotvm import CONV, DENSE
from tests.records.written import HERE as DEVICE
from tests.records.written import MODULE, record
from tests.test_architecture import IMPORTED, ROOT, heavy_imports
from tests.traces.hostile import TEXTS, trace

pytestmark = pytest.mark.usefixtures("no_leaks")

HERE = DEVICE._replace(
    target='{"kind":"llvm","mcpu":"znver4","num_cores":2}',
    versions='{"llvm":"22","tvm":"0.27.0.post1"}',
)
ABOUT = WorkloadInfo(("nn.conv2d", "add"), ("float32[1,8,8,4]",), ("float32[1,8,8,32]",), 1e3, "x")
KNOBS = '{"knobs": {"columns": 32, "rows": 8}, "template": "contraction", "version": 2}'
TRACE = (
    '[[["GetSBlock", [], ["C", "main"], ["b0"]], ["GetLoops", ["b0"], [], ["l1"]],'
    ' ["SamplePerfectTile", ["l1"], [2, 64], ["v2", "v3"]]], [[2, [4, 2]]]]'
)


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "store" / "records"
    folder.mkdir(parents=True)
    with RecordStore.open(folder / "records.sqlite", pytest.fail) as store:
        trials = [
            record((2e-3,), schedule=KNOBS, engine="autotvm"), record((3e-3,), schedule=TRACE),
            record((), error="building crashed: \x1b[31mSIGSEGV"),
        ]  # fmt: skip
        store.add(HERE, MODULE, trials, ABOUT)
        store.add(HERE, '{"root":2}', [record((5e-4,), workload="0a1b2c3d4e5f6071", cut=True)])
    return folder.parent


@pytest.fixture
def cli(root, call):
    def run(*arguments, store=root, code=0):
        return call("records", *arguments, "--store", store, code=code)

    return run


def test_the_list_has_a_row_for_each_workload_in_80_columns(cli):
    lines = cli("ls").out.splitlines()
    assert lines[0] == "llvm znver4, 2 cores; x; llvm 22, tvm 0.27.0.post1"
    assert lines[2:5] == [
        "  00ff                    3        1       2 ms  autotvm on direct",
        "      conv2d + add -> float32[1,8,8,32]",
        "  0a1b2c3d4e5f6071        1        0    500 us~  ansor on direct",
    ]
    assert lines[-1] == "4 records of 2 workloads on 1 platform"
    assert max(map(len, lines)) <= 80
    assert cli("ls", "--target", "sm_90").out.strip() == "0 records of 0 workloads on 0 platforms"


def test_the_list_as_json(cli):
    first, _ = json.loads(cli("ls", "--json").out)
    assert (first["workload"], first["trials"], first["failed"]) == ("00ff", 3, 1)
    assert (first["seconds"], first["engine"]) == (2e-3, "autotvm")
    assert first["about"]["ops"] == ["nn.conv2d", "add"]
    assert first["target"]["mcpu"] == "znver4"


def test_a_workload_is_shown_with_its_schedules_and_failures(cli):
    shown = cli("show", "00").out
    assert "3 trials, 1 failed" in shown
    assert "      template contraction, version 2\n      columns=32 rows=8\n" in shown
    assert "      b0 = GetSBlock(C, main)\n      l1 = GetLoops(b0)\n" in shown
    assert "SamplePerfectTile(l1, 2, 64) decided [4, 2]\n" in shown
    assert "failed 1 time: building crashed: \\x1b[31mSIGSEGV" in shown
    (entry,) = json.loads(cli("show", "00", "--json").out)
    assert [each["seconds"] for each in entry["records"]] == [[2e-3], [3e-3], []]


@pytest.mark.parametrize(
    ("start", "reason"), [("0", "start of 2 workloads"), ("abc", "no workload starts with 'abc'")]
)
def test_a_start_that_is_not_one_workload_is_an_error(cli, start, reason):
    assert reason in cli("show", start, code=2).err


def test_an_export_goes_from_store_to_store(cli, tmp_path):
    file, other = tmp_path / "records.jsonl", tmp_path / "other"
    assert cli("export", file).out == f"wrote 4 records to {file}\n"
    assert cli("import", file, store=other).out == "4 records added, 0 were known\n"
    assert cli("import", file, store=other).out == "0 records added, 4 were known\n"
    assert cli("export", "-", store=other).out == file.read_text()
    assert "autotvm on direct, claimed\n" in cli("ls", store=other).out
    assert "autotvm on direct  claimed, 2026" in cli("show", "00", store=other).out
    assert json.loads(cli("ls", "--json", store=other).out)[0]["claimed"]
    assert "claimed" not in cli("ls").out
    best = cli("export", "-", "--best", "--workload", "00FF").out.splitlines()
    assert [json.loads(line)["seconds"] for line in best] == [[2e-3]]


def test_a_damaged_line_of_an_import_is_told(cli, tmp_path):
    file, other = tmp_path / "records.jsonl", tmp_path / "other"
    cli("export", file)
    file.write_text(file.read_text().replace("0.002", "0.001"))
    done = cli("import", file, store=other)
    assert done.out == "3 records added, 0 were known\n"
    assert f"left out 1: {file}:" in done.err
    assert "its checksum is wrong" in done.err


def test_a_log_becomes_seeds(cli, tmp_path):
    log = tmp_path / "log.json"
    log.write_text(f"{CONV}\n{DENSE}\n[\n")
    done = cli("import", log)
    assert done.out == "2 seeds added, 0 were known\n"
    assert "left out 1: damaged" in done.err
    assert cli("ls").out.splitlines()[-1] == "from logs of other tools: 2 seeds"


def test_an_import_of_nothing_fails(cli, tmp_path):
    log = tmp_path / "log.json"
    log.write_text(CONV.replace("conv2d_NCHWc", "conv3d"))
    assert "nothing to take over" in cli("import", log, code=1).err
    log.write_text('{"i": 1, "r": 2}')
    assert "Ansor" in cli("import", log, code=2).err
    assert "cannot be read" in cli("import", tmp_path / "nothing", code=2).err


def test_stores_are_merged(cli, root, tmp_path):
    other = tmp_path / "other"
    assert cli("merge", root, store=other).out == f"{root}: 4 records added, 0 were known\n"
    assert cli("merge", root, store=other).out == f"{root}: 0 records added, 4 were known\n"
    assert cli("export", "-", store=other).out == cli("export", "-").out


def test_pruning_says_what_goes(cli):
    assert "say what goes" in cli("prune", code=2).err
    would = cli("prune", "--failed", "--keep-best", "1", "--dry-run").out
    assert would == (
        "would delete 1: failed\nwould delete 1: not among the best\nwould delete 2 records\n"
    )
    assert cli("prune", "--failed").out == "deleted 1: failed\ndeleted 1 record\n"
    assert cli("ls").out.splitlines()[-1].startswith("3 records")
    assert cli("prune", "--older-than", "1").out.splitlines()[-1] == "deleted 3 records"


def test_damage_is_told(cli, root):
    with (
        RecordStore.open(root / "records" / "records.sqlite", pytest.fail) as store,
        store.connection,
    ):
        store.connection.execute("UPDATE records SET seconds = '[1e-9]' WHERE id = 1")
    assert "left out 1 damaged record" in cli("ls").err
    cli("prune", "--failed")
    assert "kept aside: 1 damaged record" in cli("ls").out


@pytest.mark.parametrize("command", [["ls"], ["show", "00ff"], ["export", "-"]], ids=" ".join)
def test_a_store_without_records_is_an_error_and_is_not_made(cli, tmp_path, command):
    other = tmp_path / "other"
    assert "there are no tuning records" in cli(*command, store=other, code=5).err
    assert not other.exists()


@pytest.mark.parametrize("command", [["ls"], ["show", "00ff"], ["export", "-"]], ids=" ".join)
def test_looking_imports_nothing_heavy(root, command):
    arguments = [sys.executable, "-c", IMPORTED, "records", *command, "--store", root]
    done = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, check=False)
    assert heavy_imports(done.stderr) == (0, []), done.stderr


@pytest.mark.fault("H5")
def test_an_imported_trace_with_code_costs_its_line(cli, tmp_path):
    file, other = tmp_path / "records.jsonl", tmp_path / "other"
    code = trace("Annotate", ["l1", TEXTS["LLVM IR"]], ["pragma_import_llvm"], [])
    forged = RecordDetails(0, record((1e-9,), schedule=code), HERE, "1d", ABOUT, None)
    cli("export", file)
    file.write_text(file.read_text() + lines.write([forged]))
    done = cli("import", file, store=other)
    assert done.out == "4 records added, 0 were known\n"
    assert "left out 1" in done.err
    assert "workload 00ff, engine ansor: instruction 4, Annotate: key may not be" in done.err
    cli("ls", store=other)
