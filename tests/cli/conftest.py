"""The command line, run in this process."""

import sys

import pytest

from autopipe.cli.app import main


@pytest.fixture
def call(monkeypatch, capsys):
    """Run a command that ends with an exit code, and return its output."""

    def run(*arguments, code=0):
        monkeypatch.setattr(sys, "argv", ["autopipe", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            main()
        output = capsys.readouterr()
        assert end.value.code == code, output.err
        assert "Traceback" not in output.err
        return output

    return run
