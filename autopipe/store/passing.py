"""Temporary folders that are removed even if their process was killed."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from autopipe.store import files, locks


@contextmanager
def open_temporary_folder() -> Iterator[Path]:
    """Create a temporary folder of this user.

    Folders of killed processes are removed by the next call. Raises OSError if it cannot be
    written.
    """
    with ExitStack() as stack:
        user_folder = files.make_own_directory(
            Path(tempfile.gettempdir(), f"autopipe-{os.geteuid()}")
        )
        if user_folder is not None:
            yield stack.enter_context(
                locks.lease_folder(user_folder, user_folder / "gate", locks.FOR_EVER)
            )
        else:
            yield Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="autopipe-")))
