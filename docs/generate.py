"""Writes what follows from the code: `python -m docs.generate`, in the checkout.

The JSON schema, the reference pages of fields, commands and exit codes, and the chart of the page
on performance.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import typer

from autopipe import errors
from autopipe.cli.app import build_app
from autopipe.config.schema import build_json_schema, format_field_table
from docs.chart import draw_chart

_NOTE = "`make gen` writes this page from the code.\n"

_FIELDS = f"""\
# The pipeline file

The first line gives an editor completion and checks:

```yaml
# yaml-language-server: $schema=../schemas/pipeline.schema.json
```

Unknown keys, duplicate keys, anchors, tags, and values that YAML versions read differently are
errors ([why](../adr/0008-a-strict-subset-of-yaml.md)). {_NOTE}
"""

_COMMANDS = f"""\
# Commands

{_NOTE}
Every command ends in one of these [exit codes](exit-codes.md).
"""

_CODES = f"""\
# Exit codes

{_NOTE}
| code | means |
|---|---|
"""

_ENDS = """\
What holds whatever goes wrong is in [guarantees](../guarantees.md); what was tried, how it ends,
and the test that proves it in [faults](../faults.md).
"""


def generated(root: Path) -> Iterator[tuple[Path, str]]:
    """Yield each generated file under `root` with the text it should have."""
    schema = json.dumps(build_json_schema(), indent=2, ensure_ascii=False) + "\n"
    yield root / "schemas" / "pipeline.schema.json", schema
    reference = root / "docs" / "reference"
    yield reference / "pipeline-file.md", _FIELDS + format_field_table()
    yield (
        reference / "commands.md",
        _COMMANDS + "".join(_commands(typer.main.get_command(build_app()))),
    )
    yield reference / "exit-codes.md", _CODES + "".join(_codes()) + f"\n{_ENDS}"
    page = Path(__file__).with_name("performance.md").read_text("utf-8")
    yield root / "docs" / "performance.svg", draw_chart(page)


def main() -> None:
    """Bring the generated files of the current folder up to date."""
    for path, text in generated(Path()):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")


def exit_codes() -> Mapping[int, list[str]]:
    """Return what each exit code means, as the docstring of `errors` says."""
    found: dict[int, list[str]] = {0: ["the command is finished"]}
    lines = re.findall(r"^ +- \w+ +(.+?) +exit (\d+)$", errors.__doc__ or "", re.MULTILINE)
    for meaning, code in lines:
        found.setdefault(int(code), []).append(meaning)
    bug = "a bug in autopipe; please report it with its traceback"
    signals = {
        129: ["SIGHUP: the terminal was closed; below `nohup` it is ignored"],
        130: ["Ctrl-C"],
        143: ["SIGTERM"],
    }
    return {**found, errors.AutopipeError.exit_code: [bug], **signals}


def _codes() -> Iterator[str]:
    for code, meanings in exit_codes().items():
        yield f"| {code} | {'; '.join(meanings)} |\n"


def _commands(group: Any, before: str = "autopipe") -> Iterator[str]:  # noqa: ANN401 - click's own
    for name, command in group.commands.items():
        called = f"{before} {name}"
        if hasattr(command, "commands"):
            yield from _commands(command, called)
        else:
            yield _command(called, command)


def _command(called: str, command: Any) -> str:  # noqa: ANN401 - click's own
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    options = [each for each in command.params if each.param_type_name == "option"]
    context = command.make_context(called, [], resilient_parsing=True)
    usage = " ".join([called, *(_argument(each) for each in arguments)])
    rows = [(_argument(each), each.help or "") for each in arguments]
    rows += [each.get_help_record(context) for each in options]
    lines = [
        f"| `{' '.join(usage_text.split())}` | {' '.join(help_text.split())} |\n"
        for usage_text, help_text in rows
    ]
    table = "".join(["\n| | |\n|---|---|\n", *(_cells(line) for line in lines)]) if lines else ""
    return f"\n## {usage}\n\n{' '.join((command.help or '').split())}\n{table}"


def _cells(line: str) -> str:
    """Escape what separates choices, for it would begin a cell."""
    return re.sub(r"(?<=\w)\|(?=\w)", r"\\|", line)


def _argument(parameter: Any) -> str:  # noqa: ANN401 - click's own
    name = (parameter.metavar or parameter.name).upper()
    return f"{name}..." if parameter.nargs == -1 else str(name)


if __name__ == "__main__":
    main()
