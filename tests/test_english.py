"""The words of the code base: technical terms of the field, and things that are no persons."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = sorted(
    path for name in ("autopipe", "benchmarks") for path in (ROOT / name).rglob("*.py")
)
PAGES = [
    path
    for path in sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
    if "adr" not in path.parts  # decisions stay as they were written
]
WORDS = {
    r"(some|no)body": "the component, or `None` of a list",
    r"whom?|he": "the noun of the thing",
    r"believed?s?|hears?|liked|liars?": "trust, receive, prefer, outlier worker",
    r"told|said": "reported, logged, stated",
    r"open (sizes?|dimensions?)": "dynamic shapes, dynamic dimension",
    r"found sizes|sizes that are found": "data-dependent shapes",
    r"rivals?": "reference runtime, competitor",
    r"finals|heats": "in-model comparison, round",
    r"run-?offs?": "repeated measurement",
    r"the \*?least\*?": "the minimum",
    r"can not": "cannot",
}
"""What is not written, and what stands in its place."""
BARE = {"each", "found", "given", "held", "kept", "known", "made", "one", "said", "told"}
"""What no variable of a function is named: a noun says what it holds. Comprehensions may."""
OPENINGS = ("Return what ", "Have ", "Let ", "Say what ", "Take what ", "Yield what ")
"""How no docstring begins: its first sentence needs a noun of the domain."""


def read_prose(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of a page, or of the comments, docstrings and messages of a module."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        yield from enumerate(re.sub(r"`[^`\n]*`|\]\([^)\n]*\)", "", text).splitlines(), 1)
        return
    strings = {tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        is_text = token.type in strings and " " in token.string  # others are keys and names
        if is_text or token.type == tokenize.COMMENT:
            yield from enumerate(token.string.splitlines(), token.start[0])


def find_words(path: Path) -> list[str]:
    """Return the places of a file where a word of `WORDS` stands, each with what to write."""
    return [
        f"{path}:{number}: {match.group()!r}: write {preferred}"
        for number, line in read_prose(path)
        for pattern, preferred in WORDS.items()
        if (match := re.search(rf"\b({pattern})\b", line, re.IGNORECASE))
    ]


@pytest.mark.parametrize("paths", [SOURCES, PAGES], ids=["sources", "pages"])
def test_words_of_the_field_are_used(paths):
    assert [place for path in paths for place in find_words(path)] == []


def test_a_docstring_says_what_its_function_does():
    documented = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module)
    docstrings = [
        (path, ast.get_docstring(node) or "")
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, documented)
    ]
    assert [(str(path), text) for path, text in docstrings if text.startswith(OPENINGS)] == []


def list_bare_names(function: ast.FunctionDef) -> set[str]:
    """Return the names in `BARE` of parameters and variables of a function."""
    names = {argument.arg for argument in ast.walk(function.args) if isinstance(argument, ast.arg)}
    nodes: list[ast.AST] = [*function.body]
    while nodes:
        node = nodes.pop()
        if isinstance(
            node, ast.Lambda | ast.GeneratorExp | ast.ListComp | ast.SetComp | ast.DictComp
        ):
            continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        nodes.extend(ast.iter_child_nodes(node))
    return names & BARE


def test_variables_are_named_by_nouns():
    bare = {
        f"{path}:{node.name}": names
        for path in sorted((ROOT / "autopipe").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef) and (names := list_bare_names(node))
    }
    assert bare == {}


def test_a_bare_name_is_found():
    code = "def count(given):\n    made = [one for one in given]\n    return lambda each: made"
    (function,) = ast.parse(code).body
    assert isinstance(function, ast.FunctionDef)
    assert list_bare_names(function) == {"given", "made"}


@pytest.mark.parametrize(
    ("name", "text", "count"),
    [
        ("page.md", "Nobody reads it.", 1),
        ("page.md", "as fast as its rival", 1),
        ("page.md", "see `docs/finals.md` and [a page](finals.md)", 0),
        ("code.py", "x = 1  # can not fail", 1),
        ("code.py", '"""A model with open sizes."""', 1),
        ("code.py", "raise ValueError(f'{x} was told twice')", 1),
        ("code.py", "told = {'said': 1}", 0),
    ],
)
def test_words_of_prose_are_found_and_names_of_code_are_not(tmp_path, name, text, count):
    file = tmp_path / name
    file.write_text(text)
    assert len(find_words(file)) == count
