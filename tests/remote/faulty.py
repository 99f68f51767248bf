"""A storage that does what it should not: `faulty:///folder`, run in place of the real server.

`FAULT` in the environment chooses requests (get, put, info, ls) whose path has a name in it, and
says what becomes of them: `get objects flip`.
"""

import os
import signal
import time
from pathlib import Path

import fsspec
from fsspec.implementations.local import LocalFileSystem

from autopipe.remote.server import main


def _fault(do: str, path: str) -> str:
    chosen, name, how = os.environ.get("FAULT", "").split() or ("", "", "")
    return how if chosen == do and name in path else ""


def _act(how: str) -> None:
    match how:
        case "hang":
            if "HANGS" in os.environ:
                Path(os.environ["HANGS"]).touch()
            time.sleep(600)
        case "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "refuse":
            raise PermissionError("Forbidden: the secret is xyzzy-xyzzy")
        case "down":
            raise ConnectionError("could not connect to https://me:xyzzy@host/a?token=xyzzy-xyzzy")
        case "full":
            raise OSError(28, "No space left on device")
        case "odd":
            raise RuntimeError


def _spoil(how: str, file: Path) -> None:
    data = file.read_bytes()
    match how:
        case "flip":
            file.write_bytes(bytes([data[0] ^ 1]) + data[1:])
        case "truncate":
            file.write_bytes(data[:-1])
        case "empty":
            file.write_bytes(b"")
        case "append":
            file.write_bytes(data + b"x")
        case "half":
            file.write_bytes(data[: len(data) // 2])
            raise ConnectionError("connection reset")
        case "folder":
            file.unlink()
            file.mkdir()


class Faulty(LocalFileSystem):  # type: ignore[misc]
    protocol = "faulty"

    @classmethod
    def _strip_protocol(cls, path):
        return super()._strip_protocol(str(path).removeprefix("faulty://"))

    def get_file(self, path1, path2, **kwargs):
        how = _fault("get", path1)
        _act(how)
        super().get_file(path1, path2)
        _spoil(how, Path(path2))

    def put_file(self, path1, path2, **kwargs):
        how = _fault("put", path2)
        _act(how)
        super().put_file(path1, path2)
        _spoil(how, Path(path2))

    def info(self, path, **kwargs):
        _act(_fault("info", path))
        return super().info(path)

    def ls(self, path, detail=False, **kwargs):  # noqa: FBT002 -- as in fsspec
        _act(_fault("ls", path))
        return super().ls(path, detail)


fsspec.register_implementation("faulty", Faulty)

if __name__ == "__main__":
    main()
