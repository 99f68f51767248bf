import errno
import os
import platform
import socket
import subprocess
import threading

import pytest

from autopipe.errors import SetupError
from autopipe.processes import seccomp

needed = pytest.mark.skipif(not seccomp.works(), reason="this kernel has no seccomp")


def confined(work):
    """Return the number of the error that work ends in when it is confined, 0 for none."""
    child = os.fork()
    if child == 0:
        try:
            assert seccomp.confine_thread()
            work()
            os._exit(0)
        except OSError as error:
            os._exit(error.errno or 255)
        finally:
            os._exit(254)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


FORBIDDEN = {
    "fork": lambda _: os.fork(),
    "run": lambda _: subprocess.run(["true"], check=True),
    "execute": lambda _: os.execv("/bin/true", ["true"]),
    "new file": lambda path: (path / "new").open("w"),
    "append": lambda path: (path / "old").open("a"),
    "truncate": lambda path: os.truncate(path / "old", 0),
    "delete": lambda path: (path / "old").unlink(),
    "rename": lambda path: (path / "old").rename(path / "other"),
    "link": lambda path: (path / "link").symlink_to("old"),
    "folder": lambda path: (path / "folder").mkdir(),
    "mode": lambda path: (path / "old").chmod(0o777),
    "unnamed file": lambda path: os.open(path, os.O_TMPFILE | os.O_RDWR),
    "connection": lambda _: socket.socket(),
    "signal": lambda _: os.kill(os.getppid(), 0),
    "memory file": lambda _: os.memfd_create("x"),
}


@needed
@pytest.mark.fault("J3")
@pytest.mark.parametrize("what", FORBIDDEN)
def test_what_is_confined_reaches_nothing(tmp_path, what):
    (tmp_path / "old").write_text("kept")
    assert confined(lambda: FORBIDDEN[what](tmp_path)) == errno.EPERM
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("old", "kept")]


def in_a_thread():
    thread = threading.Thread(target=len, args=("",))
    thread.start()
    thread.join()


@needed
@pytest.mark.parametrize(
    "work",
    [
        lambda path: (path / "old").read_text(),
        lambda path: list(path.iterdir()),
        lambda _: in_a_thread(),
    ],
)
def test_reading_and_threads_go_on(tmp_path, work):
    (tmp_path / "old").write_text("kept")
    assert confined(lambda: work(tmp_path)) == 0


@pytest.mark.fault("J4")
def test_where_there_is_none_doctor_says_so(monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "pdp11")
    assert not seccomp.works()
    with pytest.raises(SetupError, match="no seccomp here"):
        seccomp.check_seccomp({}, None)
