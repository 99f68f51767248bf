"""Facts of the environment: versions, target, machine, linker. A stage's facts enter its key.

Facts that only TVM knows are queried once for each installation, in a child process, which also
checks that the installation works. The answer is stored, so that a cached run never imports TVM.
"""

import math
import os
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib import metadata
from pathlib import Path
from platform import machine, python_version
from typing import Final, Protocol

from autopipe.backends import BACKENDS
from autopipe.config.target import Target
from autopipe.environment.caches import find_cache_sizes
from autopipe.environment.facet import Facet, Facts
from autopipe.environment.machines import find_machine
from autopipe.environment.template_versions import TEMPLATE_VERSIONS
from autopipe.environment.toolchain import describe_toolchain
from autopipe.errors import SetupError, TargetError
from autopipe.extensions import list_distributions, read_template_versions
from autopipe.formats import FORMATS
from autopipe.host.distributions import find_installed_version
from autopipe.libraries import list_versions
from autopipe.store import files
from autopipe.store.canonical import digest_json, seal_document, unseal_document
from autopipe.store.store import Store

_STACK: Final = ("apache-tvm", "apache-tvm-ffi")

Stack = Mapping[str, str]
"""Facts from TVM: `llvm` version, the host's `mcpu` and `mtriple`, and missing features `lacks`."""

_ASKED: Final = ("llvm", "mcpu", "mtriple", "lacks")
_EXAMINED: Final = 2
"""Bump when the same installation gives other facts on the same machine."""


class Environment(Protocol):
    """A source of facts."""

    def facts(self, facets: Iterable[Facet]) -> Facts:
        """Return the facts of the facets. Raises SetupError, TargetError."""

    def known(self, facets: Iterable[Facet]) -> Facts | None:
        """Return the same, or None if that needs facts from TVM."""


class Host:
    """The machine of this process, for a pipeline with this target."""

    def __init__(self, target: Target, store: Store, examine: Callable[[], Stack]) -> None:
        """Set target and store; `examine` queries TVM in a child and raises SetupError."""
        self._target = target
        self._store = store
        self._examine = examine
        self._known: dict[Facet, Mapping[str, object]] = {}

    def facts(self, facets: Iterable[Facet]) -> Facts:
        """Return the facts of the facets, querying TVM only once for an installation."""
        facets = frozenset(facets)
        facts = self.known(facets)
        if facts is None:
            _write_stack(self._store, self._examine())
            facts = self.known(facets)
        if facts is None:
            raise SetupError(f"{self._store.root}: cannot store the facts of TVM")
        return facts

    def known(self, facets: Iterable[Facet]) -> Facts | None:
        """Return the facts of the facets, or None if TVM was never queried.

        Facts are cached, so that a run uses one state of the machine.
        """
        found_facts = {}
        for facet in facets:
            facts = self._known.get(facet)
            if facts is None:
                facts = self._find_facts(facet)
            if facts is None:
                return None
            found_facts[facet] = self._known[facet] = facts
        return found_facts

    def _find_facts(self, facet: Facet) -> Mapping[str, object] | None:
        """Determine the facts of a facet; None if that needs facts from TVM."""
        backend = BACKENDS[self._target.kind]
        if facet in {Facet.TVM, Facet.TARGET}:
            stack = _recall(self._store)
            if stack is None:
                return None
            return (
                _describe_tvm(stack) if facet is Facet.TVM else resolve_target(self._target, stack)
            )
        if facet is Facet.TOOLCHAIN:
            return {**describe_toolchain(self._target), **backend.describe_toolchain()}
        if facet is Facet.DEVICE:
            return {**describe_device(), **backend.describe_device()}
        return _FACTS[facet]()


def resolve_target(target: Target, stack: Stack) -> dict[str, object]:
    """Replace `native` and missing fields of a target by facts of this machine.

    Raises TargetError.
    """
    mtriple = target.mtriple or stack["mtriple"]
    if target.mcpu == "native" and mtriple.split("-")[0] != stack["mtriple"].split("-")[0]:
        raise TargetError(
            f"target.mcpu: native is this machine, {stack['mtriple']}; "
            f"name the processor that target.mtriple {mtriple} has"
        )
    native = target.mcpu == "native"
    mcpu = stack["mcpu"] if native else target.mcpu
    lacks = [f"-{feature}" for feature in stack["lacks"].split()] if native else []
    return {
        **_resolve_arch(target),
        "kind": target.kind,
        "mcpu": mcpu,
        "mattr": [*lacks, *target.mattr],
        "mtriple": mtriple,
        "num_cores": target.num_cores or len(os.sched_getaffinity(0)),
        "hardware": {
            **find_cache_sizes(find_machine(mcpu, mtriple.split("-")[0]), here=native),
            **target.hardware.model_dump(exclude_none=True),
        },
    }


def _resolve_arch(target: Target) -> dict[str, object]:
    """Return the architecture of a device; empty if it has none."""
    arch = BACKENDS[target.kind].resolve_architecture(target.arch)
    return {} if arch is None else {"arch": arch}


def find_version(package: str) -> str:
    """Return the version of an installed package. Raises SetupError."""
    version = find_installed_version(package)
    if version is None:
        raise SetupError(f"{package} is not installed; pip install '{find_requirement(package)}'")
    return version


def find_requirement(package: str) -> str:
    """Return autopipe's requirement of a package, such as `apache-tvm==0.27.0.post1`."""
    try:
        lines = metadata.requires("autopipe") or []
    except metadata.PackageNotFoundError:
        lines = []
    pattern = re.compile(rf"{re.escape(package)}\s*[^\w.-][^;]*")
    return next((match[0].strip() for match in map(pattern.match, lines) if match), package)


def describe_tvm_misfit(reason: str) -> str:
    """Format the error for incompatible versions of TVM and tvm-ffi, with the remedy."""
    return (
        f"apache-tvm {find_version('apache-tvm')} does not work with apache-tvm-ffi "
        f"{find_version('apache-tvm-ffi')} ({reason}): "
        f"pip install {find_requirement('apache-tvm')} {find_requirement('apache-tvm-ffi')}"
    )


def _describe_tvm(stack: Stack) -> dict[str, object]:
    return {
        "tvm": find_version("apache-tvm"),
        "tvm_ffi": find_version("apache-tvm-ffi"),
        "llvm": stack["llvm"],
    }


@cache
def describe_device() -> dict[str, object]:
    """Describe the properties that determine the speed of code; nothing identifies the machine."""
    cpu = _read_cpu_info()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "machine": machine(),
        "cpu": cpu.get("model name") or cpu.get("CPU part") or "unknown",
        "flags": digest_json(sorted((cpu.get("flags") or cpu.get("Features") or "").split()))[:16],
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": 2 ** round(math.log2(memory)),
    }


def _read_cpu_info() -> dict[str, str]:
    """Read the fields of the first processor in /proc/cpuinfo."""
    fields: dict[str, str] = {}
    with Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            name, colon, value = line.partition(":")
            if not colon and fields:
                break
            fields[name.strip()] = value.strip()
    return fields


@cache
def _find_versions(*packages: str) -> dict[str, object]:
    return {name: find_installed_version(name) for name in packages}


_READERS: Final = tuple(package for one in FORMATS.values() for package in one.packages)
"""Packages that read models."""

_FACTS: Final[Mapping[Facet, Callable[[], dict[str, object]]]] = {
    Facet.REFERENCE: lambda: _find_versions("onnx", "onnxruntime"),
    Facet.FRONTEND: lambda: _find_versions(*_READERS, "numpy"),
    Facet.LIBRARIES: lambda: dict(list_versions()),
    Facet.PACKAGES: lambda: _find_versions("autopipe", "numpy", "safetensors"),
    Facet.EXTENSIONS: lambda: dict(list_distributions()),
    Facet.TEMPLATES: lambda: {**TEMPLATE_VERSIONS, **read_template_versions()},
}


def _find_memo_path(store: Store) -> Path:
    """Return the path of the stored facts of this installation and processor."""
    return store.root / "environments" / f"{_installation()}.json"


@cache
def _installation() -> str:
    marks = []
    for package in _STACK:
        record = f"{package.replace('-', '_')}-{find_version(package)}.dist-info/RECORD"
        path = Path(str(metadata.distribution(package).locate_file(record)))
        status = path.stat() if path.exists() else None
        marks.append([record, status and status.st_size, status and status.st_mtime_ns])
    cpu = describe_device()
    return digest_json(
        [_EXAMINED, python_version(), marks, cpu["machine"], cpu["cpu"], cpu["flags"]]
    )


def _recall(store: Store) -> Stack | None:
    with files.wrap_os_errors(store.root):
        stack = unseal_document(files.read_or_discard(_find_memo_path(store)) or b"") or {}
    return stack if all(isinstance(stack.get(name), str) for name in _ASKED) else None


def _write_stack(store: Store, stack: Stack) -> None:
    with files.wrap_os_errors(store.root):
        files.replace(_find_memo_path(store), seal_document(dict(stack)), store.tmp)
