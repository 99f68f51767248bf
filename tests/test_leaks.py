"""The leak check itself: each kind of leak fails a test that asks for it."""

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

ORPHAN = """
import os, time
if os.fork() == 0:
    os.setsid()
    time.sleep(60)
"""


def outcome(pytester, body):
    conftest = Path(__file__).with_name("conftest.py").read_text()
    pytester.makeconftest(conftest.replace("PATIENCE = 5.0", "PATIENCE = 0.2"))
    pytester.makepyfile(f"""
        import os, pathlib, subprocess, sys, tempfile
        def test_it(no_leaks, tmp_path):
            {body}
    """)
    return pytester.runpytest_inprocess("-p", "no:cacheprovider").parseoutcomes()


@pytest.mark.parametrize(
    "body",
    [
        "tempfile.mkstemp()",
        "(tmp_path / 'log').write_text(str(os.environ))",
        f"subprocess.run([sys.executable, '-c', {ORPHAN!r}], check=True)",
    ],
)
def test_a_leak_fails_the_test(pytester, body):
    assert outcome(pytester, body) == {"passed": 1, "errors": 1}


def test_a_clean_test_passes(pytester):
    body = "subprocess.run([sys.executable, '-c', 'pass'], check=True)"
    assert outcome(pytester, body) == {"passed": 1}
