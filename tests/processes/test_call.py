import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from autopipe.errors import GateError, StageError
from autopipe.processes import ahead, call

_MODULE = """
import os, signal, sys, time
from autopipe import errors
from autopipe.processes import ahead, call

def answer(request):
    match request["do"]:
        case "echo":
            print("noise"); os.system("echo more noise")
            return {"got": request["value"], "pid": os.getpid()}
        case "refuse":
            raise errors.GateError("no: it is 'wrong'")
        case "die":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "break":
            raise ValueError("a bug")
        case "hang":
            open(request["file"], "w").write(str(os.getpid()))
            time.sleep(60)

call.serve_request(answer)
"""


@pytest.fixture
def serving(tmp_path, monkeypatch):
    (tmp_path / "serving.py").write_text(_MODULE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    return "serving"


def test_answers_a_request_whatever_else_it_prints(serving):
    assert call.run_module(serving, {"do": "echo", "value": "ä"})["got"] == "ä"


def test_a_function_is_called_until_there_is_an_answer(serving, monkeypatch):
    monkeypatch.setattr(call, "_INTERVAL", 0.0)
    waits: list[None] = []
    request = {"do": "echo", "value": 1}
    assert call.run_module(serving, request, on_wait=lambda: waits.append(None))["got"] == 1
    assert waits


def test_a_child_that_ends_while_it_is_waited_for_is_an_error(serving, monkeypatch):
    monkeypatch.setattr(call, "_INTERVAL", 0.0)
    with pytest.raises(StageError):
        call.run_module(serving, {"do": "die"}, on_wait=lambda: None)


def test_a_program_that_was_started_ahead_answers_one_request(serving):
    echo = {"do": "echo", "value": 1}
    with ahead.start_ahead(serving):
        (child,) = psutil.Process().children()
        assert call.run_module(serving, echo)["pid"] == child.pid
        assert call.run_module(serving, echo)["pid"] != child.pid


def test_a_program_that_nobody_took_is_ended(serving):
    with ahead.start_ahead(serving):
        assert len(psutil.Process().children()) == 1
    assert psutil.Process().children() == []


def test_a_program_that_cannot_start_ahead_is_reported_by_its_call(serving, monkeypatch):
    def refuse(*_, **__):
        raise OSError(11, "no more processes")

    monkeypatch.setattr(ahead, "program", refuse)
    with ahead.start_ahead(serving), pytest.raises(OSError, match="no more processes"):
        call.run_module(serving, {"do": "echo", "value": 1})


def test_an_expected_error_is_raised_here(serving):
    with pytest.raises(GateError, match="no: it is 'wrong'"):
        call.run_module(serving, {"do": "refuse"})


def test_a_crash_is_an_error_that_names_the_signal(serving):
    with pytest.raises(StageError, match="killed by SIGSEGV"):
        call.run_module(serving, {"do": "die"})


def test_a_bug_is_an_error_with_its_last_line(serving):
    with pytest.raises(StageError, match="broke: ValueError: a bug"):
        call.run_module(serving, {"do": "break"})


def test_a_child_that_hangs_is_ended(serving, tmp_path):
    request = {"do": "hang", "file": str(tmp_path / "pid")}
    with pytest.raises(StageError, match="gave no answer within 1 s"):
        call.run_module(serving, request, timeout=1)
    assert psutil.Process().children() == []


def test_a_child_ends_with_its_parent(serving, tmp_path):
    file = tmp_path / "pid"
    request = {"do": "hang", "file": str(file)}
    code = f"from autopipe.processes import call; call.run_module('serving', {request})"
    parent = subprocess.Popen([sys.executable, "-c", code], env=os.environ)
    deadline = time.monotonic() + 50
    while not (file.exists() and file.read_text()) and time.monotonic() < deadline:
        time.sleep(0.02)
    pid = int(Path(file).read_text())
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    while psutil.pid_exists(pid) and time.monotonic() < deadline:
        if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            break
        time.sleep(0.02)
    else:
        assert not psutil.pid_exists(pid)
