import io
import json
import os
import pty
import re
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
from rich.cells import cell_len

from autopipe.pipeline import events
from autopipe.report import plain
from autopipe.report.console import Console, wrap_line
from autopipe.report.escape import escape_text
from autopipe.report.output import Output
from autopipe.report.reporters import JsonLines, is_live
from autopipe.report.wording import format_progress

DIGEST = "ab" * 32
EVENTS = [
    events.StageCached(stage="import", digest=DIGEST),
    events.StageStarted(stage="tune"),
    events.Progress(stage="tune", message="evil \x1b[2J\r\u202e 模🚀"),
    events.TuningProgress(
        trials=56, failed=2, budget=200, latency=0.00342, rate=2.34, remaining=61.5
    ),
    events.Warn(stage="tune", message="entry 12 failed its checksum"),
    events.StageFinished(stage="tune", digest=DIGEST, seconds=92.0, summary="12 tasks tuned"),
    events.RunFinished(exit_code=0, seconds=100.0, package="dist/a.tar"),
]
LINES = [
    "import     cached",
    "tune       started",
    r"tune       evil \x1b[2J\r\u202e 模🚀",
    "tune       56/200 trials  best 3.42 ms  2.3/s  1m 02s left  2 failed",
    "warning: tune: entry 12 failed its checksum",
    "tune       done   1m 32s  12 tasks tuned",
    "done in 1m 40s: dist/a.tar",
]
PLAY = """
import sys
from autopipe.report.reporters import open_reporter
from autopipe.cli.terminal import hang_up
from tests.report.test_reporters import EVENTS
with open_reporter(json="json" in sys.argv, quiet="quiet" in sys.argv) as tell:
    for event in EVENTS:
        tell(event)
hang_up()
"""


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


def play(reporter, *played):
    for event in played:
        reporter(event)


@pytest.fixture
def stream():
    return io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)


def written(stream):
    return stream.buffer.getvalue().decode(stream.encoding)


@pytest.mark.fault("E13")
def test_plain_is_a_line_an_event(stream):
    play(plain.Plain(Output(stream)), *EVENTS)
    assert written(stream).splitlines() == LINES


def test_plain_lines_about_tuning_are_far_apart(stream, monkeypatch):
    clock = Clock()
    monkeypatch.setattr("autopipe.report.plain.time.monotonic", clock)
    reporter = plain.Plain(Output(stream))
    for step in range(41):
        clock.now = 1000.0 + step / 2
        reporter(events.TuningProgress(
            trials=step, failed=0, budget=200, latency=None, rate=2.0, remaining=None
        ))  # fmt: skip
    shown = [int(line.split()[1].split("/")[0]) for line in written(stream).splitlines()]
    assert shown == [0, 20, 40]


def test_a_log_gets_a_line_while_a_stage_is_silent(stream, monkeypatch):
    monkeypatch.setattr(plain, "INTERVAL", 0.05)
    reporter = plain.Plain(Output(stream))
    play(reporter, events.StageStarted(stage="build"))
    play(reporter, events.Progress(stage="build", message="compiling 30 tasks"))
    deadline = time.monotonic() + 30
    while written(stream).count("so far") < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    play(reporter, events.StageFailed(stage="build", error="it ended", exit_code=4))
    lines = written(stream).splitlines()
    so_far = re.compile(r"build +\d+ s so far  compiling 30 tasks")
    assert so_far.fullmatch(lines[2])
    assert so_far.fullmatch(lines[3])
    time.sleep(0.2)
    assert written(stream).splitlines() == lines


def test_a_line_of_a_silent_stage_stands_for_the_next_one_of_its_progress(stream, monkeypatch):
    monkeypatch.setattr(plain, "INTERVAL", 1.0)
    reporter = plain.Plain(Output(stream))
    play(reporter, events.StageStarted(stage="tune"))
    deadline = time.monotonic() + 30
    while "so far" not in written(stream) and time.monotonic() < deadline:
        time.sleep(0.01)
    progress = events.Progress(stage="tune", message="schedules checked", done=1, total=9)
    play(reporter, progress, progress)
    reporter.close()
    assert len(written(stream).splitlines()) == 2


def test_tuning_says_only_what_is_known(stream):
    play(plain.Plain(Output(stream)), events.TuningProgress(
        trials=1, failed=0, budget=9, latency=None, rate=0.5, remaining=None
    ))  # fmt: skip
    assert written(stream) == "tune       1/9 trials  0.5/s\n"


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (events.StageFailed(stage="build", error="no", exit_code=4), "build      failed"),
        (events.RunFinished(exit_code=4, seconds=3), "failed after 3 s (exit code 4)"),
        (
            events.RunFinished(exit_code=4, seconds=3, error="no\x1b; advice\nmore"),
            r"failed after 3 s (exit code 4): no\x1b",
        ),
        (events.RunFinished(exit_code=0, seconds=3), "done in 3 s"),
        (
            events.RunFinished(exit_code=0, seconds=3, package="a.tar", unlocked="no lock"),
            "done in 3 s: a.tar; no lock",
        ),
        (
            events.StageSkipped(stage="benchmark", reason="as it was"),
            "benchmark  not run  as it was",
        ),
    ],
)
def test_other_ends(stream, event, line):
    play(plain.Plain(Output(stream)), event)
    assert written(stream) == line + "\n"


SEVERAL = events.BuildsFinished(
    exit_code=3,
    seconds=3.5,
    builds=(
        events.BuildResult(
            build="net-v2", file="net.yaml", target="x86-64-v2", result="done", exit_code=0,
            seconds=3.0, package="dist/net-v2.tar", competitor="onnxruntime", ratio=0.5,
        ),
        events.BuildResult(
            build="net-v3", file="net.yaml", target="evil\x1b", result="failed", exit_code=3,
            seconds=0.5, error="no",
        ),
        events.BuildResult(build="net-v4", file="net.yaml", target="native", result="not_run"),
    ),
)  # fmt: skip


def test_several_builds_end_in_a_table_and_quietly_in_nothing(stream):
    begun = events.BuildStarted(build="net-v2", file="net.yaml", target="t", number=1, total=3)
    play(plain.Plain(Output(stream)), begun, SEVERAL)
    assert written(stream).splitlines() == [
        "== net-v2 (1 of 3)  t  net.yaml",
        "build   target     result         time  ratio to          package",
        "net-v2  x86-64-v2  done            3 s  0.50 onnxruntime  dist/net-v2.tar",
        r"net-v3  evil\x1b   failed (3)   500 ms",
        "net-v4  native     not run",
        "3 builds in 3.5 s: 1 done, 1 failed, 1 not run (exit code 3)",
    ]
    quiet = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    play(plain.Quiet(Output(quiet), Output(quiet)), begun, SEVERAL)
    assert written(quiet) == ""


def test_a_table_that_is_too_wide_is_folded_between_its_columns(stream, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    play(Console(Output(stream), color=False), SEVERAL)
    assert written(stream).splitlines()[2:4] == [
        "net-v2  x86-64-v2  done            3 s  0.50 onnxruntime",
        "           dist/net-v2.tar",
    ]


def test_json_names_the_build_of_an_event_where_there_are_several(stream):
    told = [*(event.model_copy(update={"build": "net-v2"}) for event in EVENTS), SEVERAL]
    play(JsonLines(Output(stream)), *EVENTS, *told)
    lines = [json.loads(line) for line in written(stream).splitlines()]
    assert [line.pop("build", None) for line in lines] == [
        *[None] * len(EVENTS), *["net-v2"] * len(EVENTS), None,
    ]  # fmt: skip
    assert lines[: len(EVENTS)] == lines[len(EVENTS) : -1]
    assert [events.parse.validate_json(line) for line in written(stream).splitlines()] == [
        *EVENTS, *told,
    ]  # fmt: skip


def test_quiet_gives_the_path_and_the_warnings(stream):
    err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    play(plain.Quiet(Output(stream), Output(err)), *EVENTS)
    assert written(stream) == "dist/a.tar\n"
    assert written(err) == LINES[4] + "\n"


def run(*arguments, **options):
    return subprocess.run(
        [sys.executable, "-c", PLAY, *arguments],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        timeout=60,
        check=False,
        **options,
    )


def test_json_is_the_events_and_nothing_else():
    done = run("json", env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert done.stderr == b""
    lines = done.stdout.decode("ascii").splitlines()
    assert [events.parse.validate_json(line) for line in lines] == EVENTS
    assert all(isinstance(json.loads(line), dict) for line in lines)


def test_a_pipe_gets_plain_lines():
    done = run(env={**os.environ, "PYTHONIOENCODING": "utf-8"})
    assert done.stdout.decode().splitlines() == LINES
    assert done.stderr == b""


@pytest.mark.fault("E15")
def test_a_stream_that_knows_only_ascii_gets_ascii():
    done = run(env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0
    assert rb"\u6a21\U0001f680" in done.stdout


@pytest.mark.fault("E15")
@pytest.mark.parametrize("arguments", ["", "json", "quiet"])
@pytest.mark.parametrize("redirect", ["", ">&-"])
def test_nobody_reads_stdout(arguments, redirect):
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        ["sh", "-c", f'exec "$0" -c "$1" {arguments} {redirect}', sys.executable, PLAY],
        cwd=Path(__file__).parents[2],
        stdout=write,
        stderr=subprocess.PIPE,
        timeout=60,
        check=False,
    )
    os.close(write)
    assert done.returncode == 0
    assert b"Traceback" not in done.stderr
    assert b"Exception" not in done.stderr


def screen(text, columns):
    """What a terminal of endless height shows: the lines, soft-wrapped.

    It knows what a live line needs: new line, back to the margin, up, and erase a line.
    """
    lines, at, column = [""], 0, 0
    for part in re.findall(r"\x1b\[\d*[A-Za-z]|[\r\n]|[^\x1b\r\n]", text):
        if part == "\r":
            column = 0
        elif part == "\n":
            at, column = at + 1, 0
            lines += [""] * (at == len(lines))
        elif part == "\x1b[1A":
            at -= 1
        elif part == "\x1b[2K":
            lines[at] = ""
        else:
            assert not part.startswith("\x1b"), part
            if column == columns:
                at, column = at + 1, 0
                lines += [""] * (at == len(lines))
            lines[at] = lines[at][:column].ljust(column) + part + lines[at][column + 1 :]
            column += 1
    return lines


def console(stream, monkeypatch, columns, *played, color=False):
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm")
    with closing(Console(Output(stream), color=color)) as reporter:
        play(reporter, *played)
    return written(stream)


def test_a_terminal_keeps_one_line_for_each_finished_stage(stream, monkeypatch):
    text = console(stream, monkeypatch, 80, *EVENTS)
    assert screen(text, 80) == [LINES[0], *LINES[4:], ""]
    assert "56/200 trials  best 3.42 ms  2.3/s  1m 02s left" in text


def test_the_live_line_comes_back_below_a_warning(stream, monkeypatch):
    text = console(stream, monkeypatch, 80, *EVENTS[1:5])
    assert screen(text, 80) == [LINES[4], "tune           0 s  " + LINES[3][11:], ""]


@pytest.mark.fault("E15")
@pytest.mark.parametrize("columns", [80, 20])
def test_the_live_line_never_wraps(stream, monkeypatch, columns):
    text = console(stream, monkeypatch, columns, *EVENTS[1:4])
    drawn = [live.rstrip("\n") for live in text.split("\r\x1b[2K")]
    assert len(drawn) > 3
    assert any(len(live) == columns - 2 for live in drawn) is (columns == 20)
    assert all(cell_len(live) <= columns - 2 for live in drawn)  # room for ^C


def test_a_run_that_is_cut_off_leaves_the_cursor_on_a_new_line(stream, monkeypatch):
    assert console(stream, monkeypatch, 80, events.StageStarted(stage="tune")).endswith("\n")


@pytest.mark.fault("E13")
@pytest.mark.parametrize(
    "name", ["[red]a[/red]", "[/]", ":smile:", "[link=x]", "\\[b]", "192.168.0.1"]
)
def test_what_a_name_looks_like_is_no_markup(stream, monkeypatch, name):
    live = [events.StageStarted(stage="tune"), events.Progress(stage="tune", message=name)]
    said = [*live, events.Warn(stage="tune", message=name)]
    text = console(stream, monkeypatch, 80, *said, color=True)
    shown = escape_text(name)
    assert f"\x1b[33mwarning: tune: {shown}\x1b[0m\n" in text
    assert f"tune           0 s  {shown}\n" in text


@pytest.mark.fault("E15")
def test_the_cursor_is_never_hidden(stream, monkeypatch):
    """A process that is killed could not show it again."""
    assert "\x1b[?" not in console(stream, monkeypatch, 80, *EVENTS, color=True)


def test_without_a_stage_that_runs_rich_is_not_imported():
    code = (
        "import sys\n"
        "from autopipe.pipeline import events\n"
        "from autopipe.report.console import Console\n"
        "from autopipe.report.output import Output\n"
        "tell = Console(Output(sys.stdout), color=True)\n"
        "tell(events.StageCached(stage='import', digest='ab'))\n"
        "tell(events.RunFinished(exit_code=0, seconds=3))\n"
        "before = 'rich' in sys.modules\n"
        "tell(events.StageStarted(stage='tune'))\n"
        "tell.close()\n"
        "assert (before, 'rich' in sys.modules) == (False, True)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL, timeout=60)


def test_the_live_line_shows_the_time_without_any_event(stream, monkeypatch):
    clock = Clock()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("autopipe.report.live_line.time.monotonic", clock)
    monkeypatch.setattr("autopipe.report.live_line.TICK", 0.001)
    with closing(Console(Output(stream), color=False)) as reporter:
        reporter(events.StageStarted(stage="build"))
        clock.now += 75
        while "1m 15s" not in written(stream):
            pass
    assert written(stream).endswith("build       1m 15s\n")


def test_what_goes_on_after_its_stage_has_a_live_line(stream, monkeypatch):
    copied = events.Progress(stage="package", message="MiB copied to dist", done=3, total=9)
    ended = [events.StageFinished(stage="package", digest="ab", seconds=1.0), copied]
    text = console(stream, monkeypatch, 80, *ended, events.RunFinished(exit_code=0, seconds=2))
    assert "package        0 s  3 of 9 MiB copied to dist" in text
    assert text.rpartition("\x1b[2K")[2] == "done in 2 s\n"


def test_color_is_asked_for(stream, monkeypatch):
    assert "\x1b[2mimport     cached\x1b[0m" in console(
        stream, monkeypatch, 80, *EVENTS, color=True
    )


def test_without_color_nothing_but_erasing_is_sent(stream, monkeypatch):
    text = console(stream, monkeypatch, 80, *EVENTS)
    assert set(re.findall(r"\x1b[^A-Za-z]*[A-Za-z]", text)) == {"\x1b[2K", "\x1b[1A"}


def test_wide_characters_take_two_columns(stream, monkeypatch):
    said = events.Progress(stage="tune", message="ab模型")
    text = console(stream, monkeypatch, 26, events.StageStarted(stage="tune"), said)
    assert text.rpartition("\x1b[2K")[2] == "tune           0 s  ab模\n"


@pytest.mark.fault("E15")
@pytest.mark.parametrize(
    ("environ", "live"),
    [
        ({"TERM": "xterm"}, True),
        ({"TERM": "xterm", "NO_COLOR": "1"}, True),
        ({"TERM": "dumb"}, False),
        ({}, False),
        ({"TERM": "xterm", "CI": "true"}, False),
    ],
)
def test_a_terminal_is_live_unless_it_says_otherwise(environ, live):
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as terminal:
        assert is_live(terminal, environ) is live
    os.close(ours)


@pytest.mark.fault("E15")
def test_a_pipe_is_not_live(stream):
    assert not is_live(stream, {"TERM": "xterm"})
    assert not is_live(None, {"TERM": "xterm"})


def test_a_long_line_breaks_between_words():
    line = "optimize   done   577 ms  26 conv2d in NHWC, 3 max_pool2d in NHWC, 2 transposes left"
    assert wrap_line(line, 40).splitlines() == [
        "optimize   done   577 ms  26 conv2d in",
        "           NHWC, 3 max_pool2d in NHWC, 2",
        "           transposes left",
    ]
    assert wrap_line(line, 200) == line
    assert wrap_line(line, 20) == line


@pytest.mark.parametrize(("ago", "left"), [(0.0, "  10 s left"), (9.4, "  1 s left"), (9.6, "")])
def test_the_time_left_goes_down_until_it_is_spent(ago, left):
    event = events.Progress(stage="a", message="tasks checked", done=3, total=8, remaining=9.5)
    assert format_progress(event, ago) == f"3 of 8 tasks checked{left}"


def test_a_rate_that_is_not_known_is_not_shown():
    event = events.TuningProgress(
        trials=5, failed=0, budget=9, latency=None, rate=0.0, remaining=None
    )
    assert format_progress(event) == "5/9 trials"
