"""Pipeline files and locks that an earlier release wrote, brought to the current version."""

import difflib
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from autopipe.config import load
from autopipe.config.migrations import VERSION, chain
from autopipe.config.problem import shown
from autopipe.errors import ConfigError
from autopipe.lock import file as locks
from autopipe.lock import migrations, recognize, text
from autopipe.store import files

_VERSION: Final = re.compile(r"^version: (\d+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Migration:
    """A file, and what it would be in the current version."""

    path: Path
    version: int
    """The version it has."""
    current: int
    """The version that is written now."""
    before: str
    after: str

    @property
    def changed(self) -> bool:
        """Whether it is of an earlier version."""
        return self.version != self.current

    def difference(self) -> Iterator[str]:
        """Yield the lines of a unified diff."""
        before, after = self.before.splitlines(), self.after.splitlines()
        name = shown(self.path, 4096)
        yield from difflib.unified_diff(before, after, name, name, lineterm="", n=1)

    def write(self) -> None:
        """Put it in the place of the file, whole or not at all; its mode stays.

        Raises ConfigError.
        """
        path = self.path.resolve()  # a symbolic link stays one
        try:
            mode = stat.S_IMODE(path.stat().st_mode)
            with TemporaryDirectory(prefix=".migrate-", dir=path.parent) as tmp:
                files.replace(path, self.after.encode(), Path(tmp), mode=mode)
            path.chmod(mode)  # whatever the umask took away
        except OSError as error:
            raise ConfigError(
                f"{shown(self.path, 4096)}: can not be written: {error.strerror}; it is as it was"
            ) from error


def migrate(path: Path) -> Migration:
    """Bring the text of a pipeline file or a lock to the current version; nothing is written.

    Raises ConfigError or LockError, with the line, for one that is newer, damaged or neither.
    """
    if recognize.is_lock(recognize.head(path)):
        before = locks.read_text(path)
        lock = text.parse(before, path, migrations.STEPS)
        stated = _VERSION.search(before)
        version = int(stated[1]) if stated else lock.version
        after = before if version == lock.version else text.write(lock)
        return Migration(path, version, lock.version, before, after)
    before = load.read_text(path)
    version, after = chain.upgrade(before, path)
    if version != VERSION:
        load.parse_builds(after, path)
    return Migration(path, version, VERSION, before, after)
