"""Run autopipe as a module, and as the command `autopipe`."""

from autopipe.cli import main

__all__ = ["main"]

if __name__ == "__main__":
    main()
