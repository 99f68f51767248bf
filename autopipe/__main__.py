"""Run autopipe as a module, and as the command `autopipe`."""

import signal
import sys

from autopipe.errors import SetupError
from autopipe.refusal import told

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # until `main` takes over: nothing has begun

try:
    from autopipe.cli import main
except (ImportError, MemoryError, OSError) as error:  # as where there are too few addresses for it
    found = told(error)
    if found is None:
        raise
    sys.stderr.write(f"error: {found}\n")
    sys.exit(SetupError.exit_code)

__all__ = ["main"]

if __name__ == "__main__":
    main()
