"""Rules of the code base that no linter knows."""

import ast
import json
import os
import re
import subprocess
import sys
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import pytest

from autopipe import errors
from autopipe.cli.app import COMMANDS, GROUPS
from docs import generate

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "autopipe").rglob("*.py"))
QUICKSTART = "pipelines/squeezenet.yaml"
HEAVY = [
    "tvm",
    "tvm_ffi",
    "onnx",
    "onnxruntime",
    "xgboost",
    "numpy",
    "scipy",
    "fsspec",
]
IDLE = {
    ("--help",): ["pydantic", "yaml", "autopipe.api", "autopipe.store"],
    ("run", "--help"): ["yaml", "autopipe.api", "autopipe.pipeline", "autopipe.signing"],
    ("infer", "--help"): ["yaml", "autopipe.packaging", "autopipe.pipeline"],
    ("validate", QUICKSTART): [
        "sqlite3", "autopipe.lock.locking", "autopipe.pipeline.executor",
        "autopipe.pipeline.isolate", "autopipe.records", "autopipe.signing",
        "autopipe.store.store",
    ],
    ("plan", QUICKSTART): [
        "sqlite3", "autopipe.artifacts.benchmark", "autopipe.lock.rebuild",
        "autopipe.pipeline.executor", "autopipe.records", "autopipe.signing", "autopipe.traces",
    ],
    ("schema",): ["autopipe.pipeline", "autopipe.stages"],
    ("tasks", "pipelines/mlp.yaml", "--show", "1"): [],
}  # fmt: skip
"""Commands that import nothing heavy, each with what it must not import beside: what others need.

Imports are most of the time of these commands (`benchmarks/cached.py`).
"""
IMPORTED = """
import json, sys
from autopipe.cli.app import main
try:
    main()
except SystemExit as end:
    code = end.code
else:
    code = 0
print(json.dumps({"code": code or 0, "imported": sorted(sys.modules)}), file=sys.stderr)
"""


def heavy_imports(stderr):
    """Return how a command ended that was run by `IMPORTED`, and what it imported of `HEAVY`."""
    found = json.loads(stderr.splitlines()[-1])
    return found["code"], [name for name in HEAVY if name in found["imported"]]


@pytest.mark.parametrize("arguments", IDLE, ids=" ".join)
def test_a_command_imports_only_what_it_needs(tmp_path, arguments):
    environ = {**os.environ, "AUTOPIPE_STORE": str(tmp_path / "store")}
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED, *arguments],
        cwd=ROOT,
        env=environ,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    found = json.loads(done.stderr.splitlines()[-1])
    assert found["code"] == 0, done.stderr
    assert {*HEAVY, *IDLE[arguments]} & {*found["imported"]} == set()


def test_the_child_of_infer_starts_before_the_command_is_imported():
    code = """
import sys
from autopipe.processes import ahead
start = ahead.start_ahead
def start_ahead(module):
    print(module, not {"dataclasses", "pathlib", "typer"} & sys.modules.keys())
    return start(module)
ahead.start_ahead = start_ahead
sys.argv = ["autopipe", "infer", "--help"]
from autopipe.__main__ import main
main()
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[0] == "autopipe.packaging.infer_program True"


def test_the_contracts_hold_without_the_heavy_packages():
    """What a newcomer imports to write a stage or a reporter starts at once."""
    names = "autopipe, autopipe.config, autopipe.pipeline.stage, autopipe.report, autopipe.stages"
    code = f"import {names}, sys; print([m for m in {HEAVY} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_files_stay_short():
    assert {p.name: n for p in SOURCES if (n := len(p.read_text().splitlines())) > 350} == {}


def test_functions_stay_short():
    functions = [
        (f"{path.relative_to(ROOT)}:{node.name}", (node.end_lineno or 0) - node.lineno + 1)
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef)
    ]
    assert {name: lines for name, lines in functions if lines > 45} == {}


def test_functions_are_named_by_a_verb_and_a_noun():
    """One word is enough where the module's name makes the phrase, as in `foreign.read`."""
    functions = [
        (f"{path.relative_to(ROOT)}:{node.name}", "_" in node.name.strip("_"))
        for path in SOURCES
        if path.parent.name != "cli"  # commands have the name of their function
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef)
    ]
    short = [name for name, is_phrase in functions if not is_phrase]
    assert len(short) < 0.025 * len(functions), short


def test_a_file_is_called_after_what_is_in_it():
    vague = {"utils", "util", "helpers", "common", "base", "manager", "misc"}
    assert vague.isdisjoint(path.stem for path in SOURCES)


TEXT = {"startswith", "endswith", "split", "partition", "removeprefix", "removesuffix", "find"}
MATCH = {"fnmatch", "fnmatchcase", "match", "fullmatch", "search"}


def reads_name(node):
    """Whether code asks what the name of a task or of its functions says."""
    named = re.compile(r"\b(task|function)\.(name|functions)\b")
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name):
        if isinstance(node.func, ast.Attribute) and node.func.attr in TEXT:
            return bool(named.search(ast.unparse(node.func.value)))
        called = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
        return called in MATCH and any(named.search(ast.unparse(arg)) for arg in node.args)
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
        constant = isinstance(node.left, ast.Constant)
        return constant and bool(named.search(ast.unparse(node.comparators[0])))
    return False


def test_nobody_reads_the_names_of_functions():
    """What a task computes is said by its op information."""
    found = [
        f"{path.relative_to(ROOT)}: {ast.unparse(node)}"
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text()))
        if reads_name(node)
        or (isinstance(node, ast.Constant) and str(node.value).startswith("fused_"))
    ]
    assert found == []


@pytest.mark.parametrize(
    "code",
    ["task.name.startswith('conv')", "fnmatch(each.task.name, '*')", "'conv' in task.name"],
)
def test_reading_a_name_would_be_seen(code):
    assert reads_name(ast.parse(code, mode="eval").body)


def narrows(node):
    """Whether code makes a constant of TVM without its dtype: 64 bits would become 32."""
    return (
        isinstance(node, ast.Call)
        and ast.unparse(node.func) == "relax.const"
        and len(node.args) + len(node.keywords) < 2
    )


def test_constants_say_their_dtype():
    found = [
        f"{path.relative_to(ROOT)}: {ast.unparse(node)}"
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text()))
        if narrows(node)
    ]
    assert found == []
    assert narrows(ast.parse("relax.const(1)", mode="eval").body)


def test_only_the_frontend_knows_the_operators_of_onnx():
    """What later stages need to know of a model, *import* writes into its artifact."""
    frontend = ROOT / "autopipe" / "compiler" / "frontends" / "onnx"
    others = [file for file in SOURCES if not file.is_relative_to(frontend)]
    assert [file for file in others if ".op_type" in file.read_text(encoding="utf-8")] == []


def exit_codes():
    """The exit code of each class, as the docstring of `errors` says."""
    lines = re.findall(r"^ +- (\w+) .* exit (\d+)$", errors.__doc__ or "", re.MULTILINE)
    return {name: int(code) for name, code in lines}


def test_every_error_has_the_documented_exit_code():
    base = errors.AutopipeError
    kinds = (kind for kind in vars(errors).values() if isinstance(kind, type))
    classes = [kind for kind in kinds if issubclass(kind, base) and kind is not base]
    assert exit_codes() == {error.__name__: error.exit_code for error in classes}


def test_the_page_lists_every_exit_code():
    assert {*generate.exit_codes()} == {
        *exit_codes().values(), 0, errors.AutopipeError.exit_code, 129, 130, 143,
    }  # fmt: skip


def test_the_readme_lists_every_command():
    section = (ROOT / "README.md").read_text().split("## Commands")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
    listed = {name for row in rows for name in re.findall(r"`(\w+)", row)}
    assert listed == {*COMMANDS, *GROUPS}


def test_every_decision_is_a_page_with_its_three_parts():
    pages = sorted((ROOT / "docs" / "adr").glob("[0-9]*.md"))
    assert [page.name[:4] for page in pages] == [f"{n:04}" for n in range(1, len(pages) + 1)]
    for page in pages:
        headings = re.findall(r"^## (\w+)", page.read_text(), re.MULTILINE)
        assert headings[:3] == ["Context", "Decision", "Consequences"], page.name
        assert len(page.read_text().splitlines()) <= 60, page.name


def test_links_between_pages_lead_somewhere():
    pages = [ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")]
    for page in pages:
        for link in re.findall(r"\]\((?!https?:|#)([^)#\s]+)", page.read_text()):
            assert (page.parent / link).exists(), f"{page.name}: {link}"


GLOSSARY = ROOT / "docs" / "concepts" / "glossary.md"


def named(start):
    """Return the dotted names on the page of words that begin with `start`."""
    return sorted(set(re.findall(rf"`({start}\.[\w.]+)`", GLOSSARY.read_text())))


def members(body):
    """Return what the statements of a module or of a class define, by name."""
    found: dict[str, ast.stmt] = {}
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            found[node.name] = node
        elif isinstance(node, ast.Assign):
            found.update({each.id: node for each in node.targets if isinstance(each, ast.Name)})
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found[node.target.id] = node
    return found


def is_defined(name):
    """Tell whether a dotted name of ours is defined, in the module that it names."""
    words = name.split(".")
    for count in range(len(words) - 1, 0, -1):
        path = ROOT.joinpath(*words[:count]).with_suffix(".py")
        if path.is_file():
            found = members(ast.parse(path.read_text()).body)
            for word in words[count:]:
                if word not in found:
                    return False
                found = members(getattr(found[word], "body", ()))
            return True
    return False


def test_the_glossary_names_types_that_exist():
    names = named("autopipe")
    assert len(names) > 50
    assert [name for name in names if not is_defined(name)] == []
    assert not is_defined("autopipe.tasks.task.NoTask")
    assert not is_defined("autopipe.no_module.Task")
    assert not is_defined("autopipe.tasks.task.Task.no_member")


def test_the_glossary_names_types_of_tvm_that_exist():
    spec = find_spec("tvm")
    assert spec is not None
    assert spec.origin is not None
    names = named("tvm")
    assert len(names) > 10
    for name in names:
        _, *packages, kind = name.split(".")
        files = Path(spec.origin).parent.joinpath(*packages).rglob("*.py")
        wanted = re.compile(rf"^class {kind}\b", re.MULTILINE)
        assert any(wanted.search(path.read_text()) for path in files), name


def test_the_words_of_the_glossary_are_sorted():
    table = GLOSSARY.read_text().split("<!-- words:")[1].split("<!-- end of words -->")[0]
    words = [line.split("|")[1].strip() for line in table.splitlines() if line.startswith("| ")]
    assert words[1:] == sorted(set(words[1:]), key=str.casefold)


def shared_names(texts):
    """Return the names of classes that are defined more than once in these sources."""
    nodes = (node for text in texts for node in ast.walk(ast.parse(text)))
    counts = Counter(node.name for node in nodes if isinstance(node, ast.ClassDef))
    return sorted(name for name, count in counts.items() if count > 1)


def test_a_class_name_has_one_meaning():
    table = GLOSSARY.read_text().split("<!-- pairs:")[1].split("<!-- end of pairs -->")[0]
    listed = re.findall(r"^\| `(\w+)` \| \S", table, re.MULTILINE)
    assert shared_names(path.read_text() for path in SOURCES) == sorted(listed)
    assert shared_names(["class A: ...", "def f():\n  class A: ...\nclass B: ..."]) == ["A"]
