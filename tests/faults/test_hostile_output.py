"""What files say is printed so that no terminal and no CI obeys it."""

import http.server
import json
import os
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage

import numpy as np
import pytest

from autopipe.cli.terminal import print_error, print_lines, show_json
from autopipe.errors import ConfigError, StoreError
from autopipe.packaging.infer_child import _describe_output
from autopipe.pipeline.events import RunFinished, StageFailed, StageFinished, Warn
from autopipe.records import lines
from autopipe.records.about import WorkloadInfo
from autopipe.records.importing import import_records
from autopipe.records.store import RecordStore
from autopipe.remote import courier
from autopipe.remote.courier import Courier, RemoteError
from autopipe.report.output import Output
from autopipe.report.plain import Plain
from autopipe.report.reporters import JsonLines
from autopipe.store.canonical import digest_json, seal_document
from autopipe.store.content import TreeFile, digest_tree
from autopipe.store.store import open_store
from tests.faults.conftest import Command
from tests.faults.hostile import OWNED
from tests.packaging.packages import changed, make
from tests.records.test_lines import found
from tests.records.written import HERE, MODULE, record

GOLDEN = Path(__file__).parents[1] / "golden" / "v0.1"
NAMES = [OWNED, "::error ::owned", "  ::add-mask::x", "##[add-path]/tmp", "x" * 1_000_000]


def harmless(text: str) -> bool:
    rows = text.split("\n")
    return (
        all(row.isprintable() and len(row) <= 20_000 for row in rows)
        and not re.search(r"^\s*::|##\[", text, re.MULTILINE)
        and "owned" not in [row.rpartition(":")[2] for row in rows if row.startswith("::")]
    )


@pytest.mark.fault("K8")
@pytest.mark.parametrize("name", NAMES)
def test_all_that_is_printed_passes_the_escape(capsys, name):
    print_lines([name, f"  {name}"])
    print_error(f"error: {name}\n{name}")
    plain = Plain(Output(sys.stdout))
    for event in (
        Warn(stage=name, message=name), StageFailed(stage=name, error=name, exit_code=4),
        StageFinished(stage=name, digest="a" * 64, seconds=1.0, summary=name),
        RunFinished(exit_code=0, seconds=1.0, package=name, lock=name),
    ):  # fmt: skip
        plain(event)
    print_lines([_describe_output(name, np.zeros(2, "float32"))])
    told = capsys.readouterr()
    assert harmless(told.out), told.out[:500]
    assert harmless(told.err), told.err[:500]


@pytest.mark.fault("K8")
@pytest.mark.parametrize("name", NAMES)
def test_json_says_the_same_and_no_ci_obeys_it(capsys, name):
    JsonLines(Output(sys.stdout))(Warn(stage=name, message=name))
    event = capsys.readouterr().out
    show_json({name: name})
    document = capsys.readouterr().out
    assert json.loads(event)["message"] == name
    assert json.loads(document) == {name: name}
    for text in (event, document):
        assert text.isascii()
        assert not re.search(r"^\s*::|##\[|[^\n -~]", text, re.MULTILINE)


@pytest.mark.fault("K8")
@pytest.mark.parametrize("name", NAMES)
def test_commands_print_names_of_files_harmlessly(autopipe: Command, tmp_path, name):
    short = name[:100]
    about = WorkloadInfo((name,), (name,), (name,), 1.0, "x")
    here = HERE._replace(target=json.dumps({"kind": name}), versions=json.dumps({name: name}))
    records = tmp_path / "records.jsonl"
    mine = found((1.0,), engine=short, implementation=short, about=about, here=here)
    failed = found((), error=name, schedule=name, about=about, here=here)
    bad = lines.write([found((2.0,))])[:-2] + f",{json.dumps(name)}:1}}\n"
    records.write_text(lines.write([mine, failed]) + bad)
    package = changed(
        make(tmp_path / "made"),
        manifest=lambda document: document["subject"][0].update(name=name),
    )
    report = json.loads((GOLDEN / "tiny.report.json").read_text())
    report["pipeline"], report["tasks"][0]["name"], report["error"] = name, name, name
    report["versions"][name] = name
    (tmp_path / "report.json").write_text(json.dumps(report))
    store = tmp_path / "store"
    with open_store(store):
        action = {"stage": name}
        file = TreeFile("a", 1, "a" * 64)
        content = {
            "action": action, "kind": "model", "digest": digest_tree((file,)),
            "files": [{"name": "a", "size": 1, "sha256": "a" * 64}],
        }  # fmt: skip
        (store / "actions" / f"{digest_json(action)}.json").write_bytes(seal_document(content))
    for arguments in (
        ["records", "import", records, "--store", store],
        ["records", "ls", "--store", store],
        ["records", "show", "00ff", "--store", store],
        ["records", "prune", "--failed", "--dry-run", "--store", store],
        ["cache", "ls", "--store", store],
        ["cache", "verify", "--store", store],
        ["verify", package],
        ["infer", package, "--input", "x=x.npy"],
        ["diff", GOLDEN / "tiny.report.json", tmp_path / "report.json"],
        ["baseline", "compare", tmp_path / "report.json", GOLDEN / "tiny.baseline.json"],
    ):
        done = autopipe(*arguments)
        assert done.code in {0, 1, 2, 3}, (arguments, done.err[:500])
        assert harmless(done.out), (arguments, done.out[:500])
        assert harmless(done.err), (arguments, done.err[:500])


@pytest.mark.fault("K6")
def test_commands_wait_for_no_pipe_and_read_no_device(autopipe: Command, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    package, report = GOLDEN / "tiny.tar", GOLDEN / "tiny.report.json"
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        for arguments, code in (
            (["records", "import", path, "--store", tmp_path / "store"], 2),
            (["diff", report, path], 2),
            (["baseline", "compare", report, path], 2),
            (["baseline", "compare", path, GOLDEN / "tiny.baseline.json"], 2),
            (["verify", path], 3),
            (["verify", package, "--lock", path], 6),
        ):
            done = autopipe(*arguments)
            assert done.code == code, (arguments, done.err)
            assert "not a regular file" in done.err


@pytest.mark.fault("K6")
def test_a_baseline_is_named_relative_to_its_file(autopipe: Command, tmp_path):
    text = "version: 1\nname: demo\nmodel: {path: m.onnx}\n"
    (tmp_path / "m.onnx").write_bytes(b"")
    for name, code in (("/etc/passwd", 2), ("../other/x.baseline.json", 0)):
        gates = f"gates: {{regression: {{baseline: {name}}}}}\n"
        (tmp_path / "demo.yaml").write_text(text + gates)
        done = autopipe("validate", tmp_path / "demo.yaml")
        assert "root:" not in done.err
        assert ("relative to this YAML file" in done.err) == (code == 2)


@pytest.mark.fault("K2")
def test_what_another_says_of_a_record_takes_no_winner_away(tmp_path):
    """A known line with `wrong`, and a note whose operations no processor could have done."""
    path = tmp_path / "records.jsonl"
    mine = record((1e-3,))
    forged = found((1e-3,), wrong="x", identity="", about=None)
    with RecordStore.open(tmp_path / "records.sqlite", pytest.fail) as store:
        store.add(HERE, MODULE, [mine])
        (known,) = store.every()
        flops = WorkloadInfo(("a",), (), (), 1e300, "b" * 64)
        other = forged.record._replace(session="other")
        claims = [
            known._replace(wrong="x", about=flops),
            known._replace(wrong=None, about=flops, record=other),
        ]
        path.write_text(lines.write(claims))
        import_records(store, path, None)
        best = store.best(mine.workload, MODULE, HERE)
        assert best is not None
        assert best.record.median == 1e-3


@pytest.mark.fault("K2")
def test_our_own_note_of_a_workload_replaces_another_s(tmp_path):
    """A note that was there before us would have our times be none."""
    path = tmp_path / "records.jsonl"
    with RecordStore.open(tmp_path / "one.sqlite", pytest.fail) as store:
        store.add(HERE, MODULE, [record((1e-3,))])
        (known,) = store.every()
    forged = WorkloadInfo(("a",), (), (), 1e300, "b" * 64)
    path.write_text(lines.write([known._replace(about=forged)]))
    with RecordStore.open(tmp_path / "two.sqlite", pytest.fail) as store:
        import_records(store, path, None)
        store.add(HERE, MODULE, [record((2e-3,))], forged._replace(flops=1.0))
        best = store.best("00ff", MODULE, HERE)
        assert best is not None


@pytest.fixture
def endless() -> Iterator[str]:
    """A server that lists names for ever."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None: ...

        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            with suppress(OSError):
                while True:
                    self.wfile.write(b'<a href="%064d.json">x</a>\n' % 7 * 1000)

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        server.block_on_close = False
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.fault("K3")
def test_an_endless_listing_takes_no_memory(tmp_path, endless):
    ours = getrusage(RUSAGE_SELF).ru_maxrss  # which a fork has until it is another program
    child = os.fork()  # whose children are those of this test alone
    if child == 0:
        try:
            with Courier(endless, tmp_path, timeout=120) as opened, suppress(RemoteError):
                opened.list("actions")
            os._exit(int(getrusage(RUSAGE_CHILDREN).ru_maxrss > ours + (450 << 10)))
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    with Courier(endless, tmp_path, timeout=120) as opened, pytest.raises(RemoteError) as caught:
        opened.list("actions")
    assert "no answer within" not in str(caught.value)


TOLD = {"how": "refused", "message": "", "kind": "", "text": "", "trace": "", "status": 0}

ANSWERS = [
    '{"ok": {"a": "yesterday", "b": [1], "c": 1.5}}', '{"ok": [1]}', '{"ok": NaN}', "[]",
    "nonsense",
    json.dumps({"failed": {**TOLD, "kind": "weapon", "message": "\n::error ::owned"}}),
    json.dumps({"failed": {**TOLD, "kind": "__class__"}}),
    "{}", '{"failed": []}', '{"failed": {"how": "weapon"}}',
    '{"ok": {"a": ' + "[" * 100 + "]" * 100 + "}}",
]  # fmt: skip


@pytest.mark.fault("K3")
@pytest.mark.parametrize("answer", ANSWERS)
def test_a_process_that_asks_a_remote_may_say_anything(tmp_path, monkeypatch, answer):
    (tmp_path / "hostile_server.py").write_text(
        "import socket\nlink = socket.socket(fileno=0)\nlink.setblocking(True)\n"
        "lines = link.makefile()\nlink.sendall(b'{\"ok\": null}\\n')\n"
        "lines.readline()\nlines.readline()\n"
        f"link.sendall({answer!r}.encode() + b'\\n')\nlines.readline()\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(courier, "SERVER", "hostile_server")
    with Courier("file:///x", tmp_path, timeout=60) as opened:
        if answer == ANSWERS[0]:
            assert opened.list("actions") == {"a": None, "b": None, "c": 1.5}
            return
        with pytest.raises(RemoteError) as caught:
            opened.list("actions")
    assert str(caught.value).isprintable()
    assert "ended with" not in str(caught.value), "it was this answer"


@pytest.mark.fault("K1")
def test_a_store_that_computes_its_rows_is_not_merged(tmp_path):
    """An endless table would be read for ever."""
    import sqlite3
    from contextlib import closing

    from autopipe.records.merge import merge_store

    other = tmp_path / "other.sqlite"
    RecordStore.open(other, pytest.fail).close()
    with closing(sqlite3.connect(other)) as connection:
        connection.execute("DROP TABLE records")
        columns = "1 id, 1 workload, 'a' target, 'a' versions, 'a' device, 'a' engine, 'a' implementation, 'a' schedule, '[]' seconds, NULL error, 0 cut, 'a' measured, 'a' session, 'a' checksum"  # fmt: skip # noqa: E501
        connection.execute(
            "CREATE VIEW records AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"
            f" SELECT {columns} FROM n"
        )
        connection.commit()
    with (
        RecordStore.open(tmp_path / "records.sqlite", pytest.fail) as store,
        pytest.raises(StoreError, match="it computes what it says"),
    ):
        merge_store(store, other)


def test_a_config_error_is_one(tmp_path):
    with (
        RecordStore.open(tmp_path / "records.sqlite", pytest.fail) as store,
        pytest.raises(ConfigError, match="cannot be read"),
    ):
        import_records(store, tmp_path / "missing", None)
