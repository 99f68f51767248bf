"""Run autopipe as a module, and as the command `autopipe`."""

import signal

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # until `main` takes over: nothing has begun

from autopipe.cli import main

__all__ = ["main"]

if __name__ == "__main__":
    main()
