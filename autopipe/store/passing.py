"""A folder for files that pass. It is gone when its process is, even if that is killed."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from autopipe.store import files, locks


@contextmanager
def open_temporary_folder() -> Iterator[Path]:
    """Give an empty folder among the temporary files of this user.

    Those that killed processes have left are cleared by who comes next. Raises OSError where
    nothing can be written.
    """
    with ExitStack() as stack:
        own = files.make_own_directory(Path(tempfile.gettempdir(), f"autopipe-{os.geteuid()}"))
        if own is not None:
            yield stack.enter_context(locks.lease_folder(own, own / "gate", locks.FOR_EVER))
        else:
            yield Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="autopipe-")))
