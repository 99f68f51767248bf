"""Code that a tool which reads files of strangers must not have, found in its source."""

import ast
from collections.abc import Iterator

MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "torch",
           "zipfile"}  # fmt: skip
"""What loads programs, or unpacks archives without looking. `import` of them."""

BUILTINS = {"eval", "exec", "compile", "__import__", "input"}

CALLS = {
    "os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput", "yaml.load",
    "yaml.load_all", "yaml.unsafe_load", "yaml.unsafe_load_all", "yaml.full_load",
    "yaml.full_load_all", "tarfile.open", "tarfile.TarFile", "shutil.unpack_archive",
    "runpy.run_path", "runpy.run_module", "tempfile.mktemp",
}  # fmt: skip
PARTS = {"extractall", "load_model_from_file", "spawnl", "spawnv", "spawnlp", "spawnvp"}
"""Methods, of whatever."""

PICKLING = {"load", "save", "savez", "lib.format.read_array"}
"""Functions of numpy that take pickles unless they are told not to."""


def forbidden(source: str) -> list[str]:
    """Return the forbidden pieces of code, as they are written."""
    tree = ast.parse(source)
    return [*_imports(tree), *_calls(tree)]


def _imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [node.module or "", *(f"{node.module}.{each.name}" for each in node.names)]
        if any(name.split(".")[0] in MODULES or name in CALLS for name in names):
            yield ast.unparse(node)


def _calls(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func).replace("np.", "numpy.")
        given = {word.arg: ast.unparse(word.value) for word in node.keywords}
        pickling = name.removeprefix("numpy.") in PICKLING and name.startswith("numpy.")
        if (
            name in BUILTINS | CALLS
            or name.split(".")[-1] in PARTS
            or given.get("shell", "False") != "False"
            or (pickling and given.get("allow_pickle") != "False")
        ):
            yield ast.unparse(node)
