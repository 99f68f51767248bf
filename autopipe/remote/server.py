"""The process that talks to a remote, so that one that hangs can be killed.

Started as `python -m autopipe.remote.server PARENT`. A line of JSON is a request, a line of JSON
is its answer: `{"ok": ...}`, or `{"error": word, "message": ...}` where the word is `absent`,
`denied`, `damaged` or `failed`. The first request says where the remote is.
"""

import errno
import json
import os
import re
import resource
import secrets
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from autopipe.processes.lifeline import die_with_parent

PART: Final = ".part"
"""How the name of a file ends that is being written to a folder."""
_EXTRAS: Final = {"s3": "s3", "s3a": "s3", "gs": "gs", "gcs": "gs", "http": "http", "https": "http"}
_NO_FOLDERS: Final = {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "http", "https"}
"""Where a name with slashes needs nothing to lie in; to make a folder there is to make a bucket."""
_SECRET: Final = re.compile(r"SECRET|TOKEN|PASSW|CREDENTIAL|_KEY", re.IGNORECASE)
_ANSWER: Final = 192 << 20
"""Bytes of memory that a listing may take."""
_MODIFIED: Final = ("LastModified", "mtime", "updated", "last_modified", "modified", "created")

Request = Mapping[str, Any]


class Server:
    """One remote."""

    def __init__(self, url: str) -> None:
        """Import what speaks to it. Connecting is the business of the first request."""
        from fsspec.registry import get_filesystem_class

        self._url = url
        protocol = get_filesystem_class(url.partition(":")[0]).protocol
        self._protocols = {protocol} if isinstance(protocol, str) else set(protocol)

    @cached_property
    def _opened(self) -> tuple[Any, str]:
        from fsspec.core import url_to_fs

        found: tuple[Any, str] = url_to_fs(self._url)
        return found

    @property
    def _fs(self) -> Any:  # noqa: ANN401 -- fsspec has no types
        return self._opened[0]

    def get(self, request: Request) -> None:
        """Copy a file of the remote to here; no more than `limit` bytes of it."""
        self._fs.invalidate_cache()
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        allowed = [limit for limit in (request["limit"], *before) if limit >= 0]
        resource.setrlimit(resource.RLIMIT_FSIZE, (min(allowed), before[1]))
        try:
            self._fs.get_file(self._path(request), request["file"])
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)

    def put(self, request: Request) -> None:
        """Copy a file from here to the remote."""
        path, file = self._path(request), request["file"]
        if not self._protocols & _NO_FOLDERS:
            self._fs.makedirs(path.rpartition("/")[0], exist_ok=True)
        if "file" in self._protocols:
            part = f"{path}.{secrets.token_hex(4)}{PART}"
            shutil.copyfile(file, part)
            os.replace(part, path)  # noqa: PTH105 -- fsspec's paths are texts
        else:
            self._fs.put_file(file, path)

    def size(self, request: Request) -> int | None:
        """Return how many bytes a file of the remote has."""
        self._fs.invalidate_cache()
        with _modest():
            found: int | None = self._fs.info(self._path(request)).get("size")
        return found

    def list(self, request: Request) -> dict[str, float | None]:
        """Return the names in a folder, and when each was written, in seconds since 1970."""
        self._fs.invalidate_cache()
        with _modest():
            try:
                found = self._fs.ls(self._path(request), detail=True)
            except FileNotFoundError:
                return {}
            return {each["name"].rstrip("/").rpartition("/")[2]: _modified(each) for each in found}

    def remove(self, request: Request) -> None:
        """Delete a file of the remote."""
        self._fs.rm_file(self._path(request))

    def _path(self, request: Request) -> str:
        root = self._opened[1].rstrip("/")
        return f"{root}/{request['name']}".rstrip("/")


@contextmanager
def _modest() -> Iterator[None]:
    """Let an answer take so much memory and no more, however long the remote goes on."""
    before = resource.getrlimit(resource.RLIMIT_DATA)
    status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    taken = re.search(r"^VmData:\s+(\d+) kB$", status, re.MULTILINE)
    limit = (int(taken[1]) * 1024 if taken else 0) + _ANSWER
    allowed = [each for each in (limit, *before) if each >= 0]
    resource.setrlimit(resource.RLIMIT_DATA, (min(allowed), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


def _modified(info: Mapping[str, Any]) -> float | None:
    value = next((info[name] for name in _MODIFIED if info.get(name)), None)
    try:
        value = datetime.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:
        return None
    return value.timestamp() if isinstance(value, datetime) else value


def _opened(url: str) -> Server:
    try:
        return Server(url)
    except ImportError as error:
        scheme = url.partition(":")[0]
        extra = f"'autopipe[{_EXTRAS[scheme]}]'" if scheme in _EXTRAS else f"({error})"
        raise OSError(f"{scheme}:// needs a package: pip install {extra}") from error


def _failure(error: Exception) -> dict[str, str]:
    """Say what went wrong in one line, without a secret."""
    status = getattr(error, "status", None)
    word = "failed"
    if isinstance(error, FileNotFoundError):
        word = "absent"
    elif isinstance(error, PermissionError) or status in {401, 403}:
        word = "denied"
    elif isinstance(error, OSError) and error.errno == errno.EFBIG:
        word, error = "damaged", OSError("larger than it says")
    elif isinstance(error, MemoryError):
        word, error = "damaged", OSError("it says more than any remote of ours")
    said = " ".join(str(error).split()) or type(error).__name__
    for name, value in os.environ.items():
        if len(value) > 5 and _SECRET.search(name):  # noqa: PLR2004 -- shorter is a word
            said = said.replace(value, f"${name}")
    said = re.sub(r"//[^/\s]*@", "//", said)
    return {"error": word, "message": re.sub(r"\?\S*", "?...", said)[:300]}


def main() -> None:
    """Answer requests until standard input ends; what else is printed is standard error."""
    die_with_parent(int(sys.argv[1]))
    with os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8") as out:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        server: Server | None = None
        for line in sys.stdin:
            request = json.loads(line)
            reply: dict[str, object]
            try:
                if server is None:
                    server = _opened(request["url"])
                    reply = {"ok": None}
                else:
                    reply = {"ok": getattr(server, request["do"])(request)}
            except Exception as error:  # noqa: BLE001 -- whatever a storage raises is its failure
                reply = dict(_failure(error))
            out.write(json.dumps(reply) + "\n")
            out.flush()


if __name__ == "__main__":
    main()
