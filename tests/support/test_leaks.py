"""The leak check itself: each kind of leak fails a test that asks for it."""

import pytest

pytest_plugins = ["pytester"]

ORPHAN = """
import os, time
if os.fork() == 0:
    os.setsid()
    time.sleep(60)
"""
STORE = "gate = tmp_path / 's/locks/gate'; gate.parent.mkdir(parents=True); gate.touch()"


def outcome(pytester, monkeypatch, body):
    monkeypatch.setattr("tests.support.leaks.PATIENCE", 0.2)
    pytester.makepyfile(f"""
        import fcntl, os, pathlib, subprocess, sys, tempfile
        def test_it(no_leaks, tmp_path):
            {body}
    """)
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", "-p", "tests.support.leaks")
    counts = result.parseoutcomes()
    return counts.get("passed", 0), counts.get("errors", 0)


@pytest.mark.parametrize(
    "body",
    [
        "tempfile.mkstemp()",
        "(tmp_path / 'log').write_text(str(os.environ))",
        f"subprocess.run([sys.executable, '-c', {ORPHAN!r}], check=True)",
        f"{STORE}; fcntl.flock(os.open(gate, os.O_RDWR), fcntl.LOCK_SH)",
        f"{STORE}; (tmp_path / 's/tmp/1-2f').mkdir(parents=True)",
    ],
)
def test_a_leak_fails_the_test(pytester, monkeypatch, body):
    assert outcome(pytester, monkeypatch, body) == (1, 1)


def test_a_clean_test_passes(pytester, monkeypatch):
    body = "subprocess.run([sys.executable, '-c', 'pass'], check=True)"
    assert outcome(pytester, monkeypatch, body) == (1, 0)


def test_a_store_without_leftovers_passes(pytester, monkeypatch):
    assert outcome(pytester, monkeypatch, STORE) == (1, 0)


def test_a_file_that_starts_a_command_is_known(pytester, monkeypatch):
    monkeypatch.setattr("tests.support.leaks.PATIENCE", 0.2)
    pytester.makepyfile("""
        import tempfile
        COMMAND = ["-m", "autopipe"]
        def test_it():
            tempfile.mkstemp()
    """)
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", "-p", "tests.support.leaks")
    result.assert_outcomes(passed=1, errors=1)
