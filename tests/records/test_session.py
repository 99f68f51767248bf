"""The budget of a session is on the disk: whatever ends a run, the next one spends the rest."""

import json
import signal
import subprocess
import sys

import pytest

from autopipe.records.session import Session

BUSY = """
import sys
from pathlib import Path
from autopipe.records.session import Session
with Session.resume(Path(sys.argv[1])).kept():
    print(flush=True)
    while True:
        pass
"""


def written(folder):
    return json.loads((folder / "session.json").read_text())


def test_a_session_goes_on_with_its_name_and_its_time(tmp_path):
    first = Session.resume(tmp_path)
    first.spent += 40
    first.save()
    again = Session.resume(tmp_path)
    assert again.name == first.name
    assert 40 <= again.spent <= again.elapsed


@pytest.mark.fault("D1")
def test_time_that_no_trial_has_told_of_is_written_too(tmp_path):
    """A search, a compiler and a check may take minutes before the next trial is told of."""
    with subprocess.Popen([sys.executable, "-c", BUSY, tmp_path], stdout=subprocess.PIPE) as busy:
        assert busy.stdout is not None
        busy.stdout.readline()
        while written(tmp_path)["seconds"] < 1.5:
            assert busy.poll() is None
        busy.send_signal(signal.SIGKILL)
    assert Session.resume(tmp_path).spent >= 1.5


def test_the_alarm_is_put_back(tmp_path):
    session = Session.resume(tmp_path)
    with session.kept():
        assert signal.getitimer(signal.ITIMER_REAL)[1] == 1.0
        session.forget()
        signal.raise_signal(signal.SIGALRM)  # there is nothing to write to any more
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert signal.getsignal(signal.SIGALRM) is signal.SIG_DFL


def test_the_journal_says_how_many_trials_there_were(tmp_path):
    session = Session.resume(tmp_path, 64)
    session.trials += 12
    session.save(durably=False)
    assert written(tmp_path) == {
        "session": session.name, "seconds": pytest.approx(0, abs=60), "trials": 12, "budget": 64,
    }  # fmt: skip


def test_another_folder_is_another_session(tmp_path):
    (tmp_path / "a").mkdir()
    assert Session.resume(tmp_path / "a").name != Session.resume(tmp_path).name


@pytest.mark.fault("D1")
@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"session": 3, "seconds": "x"}', "\0", '{"seconds": NaN}',
     '{"seconds": Infinity}', '{"seconds": -5}'],
)  # fmt: skip
def test_a_torn_journal_begins_a_session(tmp_path, text):
    (tmp_path / "session.json").write_text(text)
    session = Session.resume(tmp_path)
    assert session.name
    assert session.spent == 0


def test_a_session_that_is_forgotten_does_not_come_back(tmp_path):
    first = Session.resume(tmp_path)
    first.forget()
    assert Session.resume(tmp_path).name != first.name
