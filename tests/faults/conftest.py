"""What the fault tests share: our command line, in this process."""

import sys
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from autopipe.cli.app import main


@dataclass(frozen=True, slots=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str


Command = Callable[..., Done]


@pytest.fixture
def autopipe(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], no_leaks: None
) -> Command:
    def run(*arguments: object) -> Done:
        monkeypatch.setattr(sys, "argv", ["autopipe", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            main()
        told = capsys.readouterr()
        assert "Traceback" not in told.err
        code = end.value.code
        return Done(code if isinstance(code, int) else 1, told.out, told.err)

    return run
