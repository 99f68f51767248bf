"""Copy the package to the output folder."""

import shutil
from pathlib import Path

from autopipe.host.copy_file import CountBytes, copy_content, count_nothing
from autopipe.store import files


def publish_package(
    artifact: Path,
    output: Path,
    count: CountBytes = count_nothing,
) -> Path:
    """Copy the one file of a package artifact into the folder `output`, unless it is there.

    The copy is atomic. A file with the same size and modification time counts as identical.
    Raises StoreError.
    """
    with files.wrap_os_errors(output):
        (source,) = artifact.iterdir()
        target = output / source.name
        if not (target.is_file() and _read_file_marks(target) == _read_file_marks(source)):
            output.mkdir(parents=True, exist_ok=True)
            temporary = output / f".{source.name}.part"
            files.remove(temporary)  # what a killed run left may be read-only, or a link
            try:
                with source.open("rb") as content, temporary.open("wb") as out:
                    copy_content(content, out, count(source.stat().st_size))
                shutil.copystat(source, temporary)
                temporary.chmod(0o644)
                files.sync_to_disk(temporary)
                temporary.replace(target)
            finally:
                temporary.unlink(missing_ok=True)
            files.sync_to_disk(output)
    return target


def _read_file_marks(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns
