"""A package without TVM: what is in it is never run."""

import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

from autopipe.artifacts.model_nodes import NodeMap
from autopipe.artifacts.signature import LIBRARY, NODES, SIZED, Signature
from autopipe.packaging import archive
from autopipe.packaging.manifest import COMPONENTS, MANIFEST, WEIGHTS, Needs, Processor
from autopipe.packaging.pack import write_package
from autopipe.packaging.provenance import (
    Builder,
    Definition,
    Details,
    Origin,
    Predicate,
    Request,
    Sha256,
    Source,
    describe_ingredient,
)

FILES = (COMPONENTS, LIBRARY, MANIFEST, WEIGHTS)
CONTENTS = {LIBRARY: b"machine code" * 100, WEIGHTS: b"numbers" * 50}


def predicate() -> Predicate:
    needs = Needs(
        processor=Processor(machine="riscv64", mcpu="sifive-x280", features=()),
        runtime={"apache-tvm": "99"},
        signature=Signature(inputs=(), outputs=(), weights=(), threads=2),
        tasks=(),
        verification="onnxruntime 1.31.1, 8 cases",
    )
    definition = Definition(
        external_parameters=Request(pipeline="demo", configuration={"version": 1}),
        internal_parameters=needs,
        resolved_dependencies=(
            Source(digest=Sha256(sha256="ab" * 32), annotations=Origin(synthesized=False)),
            describe_ingredient("onnx", "1.21.0+cpu"),
        ),
    )
    builder = Builder(version={"autopipe": "0.1.0", "llvm": "22"})
    return Predicate(build_definition=definition, run_details=Details(builder=builder))


def make(folder: Path, nodes: NodeMap | None = None) -> Path:
    """Write a package for a machine that nobody has, and return its path."""
    library, work = folder / "library", folder / "work"
    for each in (library, work):
        each.mkdir(parents=True)
    for name, content in CONTENTS.items():
        (library / name).write_bytes(content)
    if nodes is not None:
        nodes.write(library)
    write_package(predicate(), library, work, folder / "demo.tar")
    return folder / "demo.tar"


def changed(package: Path, **contents: Any) -> Path:
    """Write a package again: `lib`, `weights`, `components` as bytes, `manifest` by a function.

    The manifest tells the new digests unless it is changed itself.
    """
    folder = package.parent / "changed"
    folder.mkdir()
    with archive.open_archive(package, FILES, (NODES, *SIZED)) as (file, members):
        names = list(members)
        for name in names:
            archive.extract_member(file, members[name], folder / name)
    document = json.loads((folder / MANIFEST).read_text())
    for word, name in (("lib", LIBRARY), ("weights", WEIGHTS), ("components", COMPONENTS)):
        if word in contents:
            (folder / name).write_bytes(contents[word])
    for name in sorted(contents.keys() & {NODES, *SIZED}):
        (folder / name).write_bytes(contents[name])
    if "manifest" in contents:
        contents["manifest"](document)
    else:
        for subject in document["subject"]:
            data = (folder / subject["name"]).read_bytes()
            subject["digest"]["sha256"] = sha256(data).hexdigest()
            subject["annotations"]["size"] = len(data)
    (folder / MANIFEST).write_text(json.dumps(document))
    out = package.parent / "changed.tar"
    left_out = contents.get("without", ())
    archive.write_archive(out, {name: folder / name for name in names if name not in left_out})
    return out


def edit(*path: str | int, value: object) -> Callable[[Any], None]:
    """Return a function that sets a field of a document, given by the keys that lead to it."""

    def change(document: Any) -> None:
        for key in path[:-1]:
            document = document[key]
        document[path[-1]] = value

    return change
