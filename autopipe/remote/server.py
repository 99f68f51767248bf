"""The process that talks to a remote, so that one that hangs can be killed.

A line of JSON is a request, a line of JSON its answer. The first request says where the remote is.
What fails is told as one of `absent`, `denied`, `damaged` and `failed`.
"""

import errno
import json
import os
import re
import resource
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from autopipe.processes import failure
from autopipe.processes.bounds import lower_limit_within
from autopipe.processes.failure import Failure, How
from autopipe.processes.start import open_parent_link

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

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
    def _opened(self) -> "tuple[AbstractFileSystem, str]":
        from fsspec.core import url_to_fs

        found: tuple[AbstractFileSystem, str] = url_to_fs(self._url)
        return found

    @property
    def _fs(self) -> "AbstractFileSystem":
        return self._opened[0]

    def get(self, request: Request) -> None:
        """Copy a file of the remote to here; no more than `limit` bytes of it."""
        self._fs.invalidate_cache()
        with lower_limit_within(resource.RLIMIT_FSIZE, request["limit"]):
            self._fs.get_file(self._format_path(request), request["file"])

    def put(self, request: Request) -> None:
        """Copy a file from here to the remote."""
        path, file = self._format_path(request), request["file"]
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
        with _limit_response_memory():
            found: int | None = self._fs.info(self._format_path(request)).get("size")
        return found

    def list(self, request: Request) -> dict[str, float | None]:
        """Return the names in a folder, and when each was written, in seconds since 1970."""
        self._fs.invalidate_cache()
        with _limit_response_memory():
            try:
                found = self._fs.ls(self._format_path(request), detail=True)
            except FileNotFoundError:
                return {}
            return {
                listed["name"].rstrip("/").rpartition("/")[2]: _parse_modified_time(listed)
                for listed in found
            }

    def remove(self, request: Request) -> None:
        """Delete a file of the remote."""
        self._fs.rm_file(self._format_path(request))

    def _format_path(self, request: Request) -> str:
        root = self._opened[1].rstrip("/")
        return f"{root}/{request['name']}".rstrip("/")


@contextmanager
def _limit_response_memory() -> Iterator[None]:
    """Let an answer take so much memory and no more, however long the remote goes on."""
    status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    taken = re.search(r"^VmData:\s+(\d+) kB$", status, re.MULTILINE)
    limit = (int(taken[1]) * 1024 if taken else 0) + _ANSWER
    with lower_limit_within(resource.RLIMIT_DATA, limit):
        yield


def _parse_modified_time(info: Mapping[str, Any]) -> float | None:
    value = next((info[name] for name in _MODIFIED if info.get(name)), None)
    try:
        value = datetime.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:
        return None
    return value.timestamp() if isinstance(value, datetime) else value


def _open_server(url: str) -> Server:
    try:
        return Server(url)
    except ImportError as error:
        scheme = url.partition(":")[0]
        extra = f"'autopipe[{_EXTRAS[scheme]}]'" if scheme in _EXTRAS else f"({error})"
        raise OSError(f"{scheme}:// needs a package: pip install {extra}") from error


def _describe_failure(error: Exception) -> Failure:
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
    return Failure(How.REFUSED, re.sub(r"\?\S*", "?...", said)[:300], word)


def main() -> None:
    """Answer requests until the other end is closed."""
    link = open_parent_link()
    server: Server | None = None
    with suppress(EOFError):
        while True:
            request = json.loads(link.receive())
            try:
                if server is None:
                    server = _open_server(request["url"])
                    line = failure.encode_answer(None)
                else:
                    line = failure.encode_answer(getattr(server, request["do"])(request))
            except Exception as error:  # noqa: BLE001 -- whatever a storage raises is its failure
                line = failure.encode_failure(_describe_failure(error))
            link.write(line)


if __name__ == "__main__":
    main()
