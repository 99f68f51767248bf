"""The child process that accesses a remote, so that a hanging access can be killed.

A line of JSON is a request, a line of JSON its answer. The first request has the URL of the remote.
A failure has one of the kinds `absent`, `denied`, `damaged` and `failed`.
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
"""Suffix of a file that is being uploaded to a folder."""
_EXTRAS: Final = {"s3": "s3", "s3a": "s3", "gs": "gs", "gcs": "gs", "http": "http", "https": "http"}
_NO_FOLDERS: Final = {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "http", "https"}
"""Protocols without folders, where making a folder would make a bucket."""
_SECRET: Final = re.compile(r"SECRET|TOKEN|PASSW|CREDENTIAL|_KEY", re.IGNORECASE)
_ANSWER: Final = 192 << 20
"""Maximum memory of a listing in bytes."""
_MODIFIED: Final = ("LastModified", "mtime", "updated", "last_modified", "modified", "created")

Request = Mapping[str, Any]


class Server:
    """One remote."""

    def __init__(self, url: str) -> None:
        """Import the client of the storage. The first request connects."""
        from fsspec.registry import get_filesystem_class

        self._url = url
        protocol = get_filesystem_class(url.partition(":")[0]).protocol
        self._protocols = {protocol} if isinstance(protocol, str) else set(protocol)

    @cached_property
    def _opened(self) -> "tuple[AbstractFileSystem, str]":
        from fsspec.core import url_to_fs

        filesystem_and_path: tuple[AbstractFileSystem, str] = url_to_fs(self._url)
        return filesystem_and_path

    @property
    def _fs(self) -> "AbstractFileSystem":
        return self._opened[0]

    def get(self, request: Request) -> None:
        """Download a file of up to `limit` bytes."""
        self._fs.invalidate_cache()
        with lower_limit_within(resource.RLIMIT_FSIZE, request["limit"]):
            self._fs.get_file(self._format_path(request), request["file"])

    def put(self, request: Request) -> None:
        """Upload a file."""
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
        """Return the size of a file of the remote in bytes."""
        self._fs.invalidate_cache()
        with _limit_response_memory():
            size: int | None = self._fs.info(self._format_path(request)).get("size")
        return size

    def list(self, request: Request) -> dict[str, float | None]:
        """Return the modification times in a folder by name, in seconds since 1970."""
        self._fs.invalidate_cache()
        with _limit_response_memory():
            try:
                entries = self._fs.ls(self._format_path(request), detail=True)
            except FileNotFoundError:
                return {}
            return {
                listed["name"].rstrip("/").rpartition("/")[2]: _parse_modified_time(listed)
                for listed in entries
            }

    def remove(self, request: Request) -> None:
        """Delete a file of the remote."""
        self._fs.rm_file(self._format_path(request))

    def _format_path(self, request: Request) -> str:
        root = self._opened[1].rstrip("/")
        return f"{root}/{request['name']}".rstrip("/")


@contextmanager
def _limit_response_memory() -> Iterator[None]:
    """Limit the memory of an answer, in case the remote sends too much."""
    status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    data_size = re.search(r"^VmData:\s+(\d+) kB$", status, re.MULTILINE)
    limit = (int(data_size[1]) * 1024 if data_size else 0) + _ANSWER
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
    """Describe an error in one line, with secrets removed."""
    status = getattr(error, "status", None)
    word = "failed"
    if isinstance(error, FileNotFoundError):
        word = "absent"
    elif isinstance(error, PermissionError) or status in {401, 403}:
        word = "denied"
    elif isinstance(error, OSError) and error.errno == errno.EFBIG:
        word, error = "damaged", OSError("larger than it says")
    elif isinstance(error, MemoryError):
        word, error = "damaged", OSError("its answer is larger than that of any remote")
    message = " ".join(str(error).split()) or type(error).__name__
    for name, value in os.environ.items():
        if len(value) > 5 and _SECRET.search(name):  # noqa: PLR2004 -- shorter is a word
            message = message.replace(value, f"${name}")
    message = re.sub(r"//[^/\s]*@", "//", message)
    return Failure(How.REFUSED, re.sub(r"\?\S*", "?...", message)[:300], word)


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
