"""Command `autopipe verify`: list and check the contents of a package, a folder or a lock."""

from collections.abc import Iterator, Mapping
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autopipe.cli.options import (
    Identity,
    Json,
    Revoked,
    SignersFile,
    Target,
    build_signers,
    is_lock,
)
from autopipe.cli.terminal import print_lines, show_json
from autopipe.errors import ConfigError, GateError, LockError
from autopipe.report.escape import escape_text

if TYPE_CHECKING:
    from autopipe.lock.document import Lock, LockedTask
    from autopipe.packaging.examine import Examined
    from autopipe.signing.signers import Signer, Signers

_WIDTH = 80

Does = Mapping[str, tuple[str, ...]]
"""The steps of each trace of a lock, by workload."""


def verify(  # noqa: PLR0913 -- one for each option
    target: Target,
    *,
    lock: Annotated[Path | None, typer.Option(help="Compare it with what this lock says")] = None,
    signers: SignersFile = None,
    identity: Identity = None,
    revoked: Revoked = None,
    as_json: Json = False,
) -> None:
    """Check every byte of a package, an exported folder or a lock.

    Nothing of it is run.

    With --signers, one of them must have signed it; with --lock, that lock.
    """
    allowed_signers = build_signers(signers, identity, revoked)
    if target.is_dir():
        if lock is not None:
            raise ConfigError("--lock compares a package with a lock, and this is a folder")
        _verify_folder(target, allowed_signers, as_json=as_json)
    elif not is_lock(target):
        _verify_package(target, lock, allowed_signers, as_json=as_json)
    elif lock is None:
        _verify_lock(target, allowed_signers, as_json=as_json)
    else:
        raise ConfigError("--lock compares a package with a lock, and this is a lock")


def _verify_package(
    package: Path, lock: Path | None, signers: "Signers | None", *, as_json: bool
) -> None:
    from autopipe.lock import file
    from autopipe.packaging.contents import open_signed_package
    from autopipe.packaging.examine import examine_package

    signer: Signer | None = None
    locked: Lock | None = None
    if lock is not None and signers is not None:
        locked, signer = file.read_signed(lock, signers)
    elif lock is not None:
        locked = file.read_lock(lock)
    does = {} if lock is None or locked is None else _read_traces(locked, lock)
    with open_signed_package(package, signers if lock is None else None) as (copy, found_signer):
        examined = examine_package(package, copy)
    signer = signer or found_signer
    differ = [] if locked is None else examined.differences(locked.artifacts)
    if as_json:
        document = {name: getattr(examined, name) for name in ("name", "format", "sha256")}
        document["files"] = {name: file.model_dump() for name, file in examined.files.items()}
        document["needs"] = examined.needs.model_dump(mode="json")
        trace_fields = (
            {} if locked is None else {"traces": {w: list(steps) for w, steps in does.items()}}
        )
        show_json(
            {**document, "differs": differ, "signer": _to_signer_dict(signer), **trace_fields}
        )
    else:
        print_lines(escape_text(line) for line in _list_lines(examined))
        if locked is not None:
            print_lines(line for task in locked.tasks for line in _list_trace_lines(task, does))
        if locked is not None and not differ:
            print_lines([_describe_equality(examined, locked, str(lock))])
        if signer is not None and not differ:
            print_lines([escape_text(f"{lock or package} is signed by {signer}")])
        elif signer is None:
            print_lines(
                ["its libraries are programs: only a signature proves their origin, see --signers"]
            )
    if lock is not None:
        _require_harmless(does, lock)
    if differ:
        raise GateError("\n".join([f"{package} is sound, but not what {lock} says:", *differ]))


def _verify_folder(folder: Path, signers: "Signers | None", *, as_json: bool) -> None:
    from autopipe.export.folder import DIGESTS
    from autopipe.export.verify_folder import read_digests, verify_folder
    from autopipe.signing.signature import SignedKind, copy_of

    data = read_digests(folder)
    signer = None
    if signers is not None:
        with copy_of(BytesIO(data)) as copy:
            signer = signers.check(copy, folder / DIGESTS, SignedKind.FOLDER)
    digests = verify_folder(folder, data)
    if as_json:
        show_json({"files": dict(digests), "signer": _to_signer_dict(signer)})
    else:
        print_lines([f"sound: {len(digests)} files, each as {DIGESTS} states"])
        print_lines([escape_text(f"{folder} is signed by {signer}")] if signer is not None else [])


def _verify_lock(path: Path, signers: "Signers | None", *, as_json: bool) -> None:
    from autopipe.lock import file

    signer: Signer | None = None
    if signers is None:
        lock = file.read_lock(path)
    else:
        lock, signer = file.read_signed(path, signers)
    file.read_records(path, lock)
    does = _read_traces(lock, path)
    if as_json:
        traces = {workload: list(steps) for workload, steps in does.items()}
        show_json(
            {**lock.model_dump(mode="json"), "signer": _to_signer_dict(signer), "traces": traces}
        )
    else:
        records = "no records" if lock.records is None else f"records {lock.records}"
        print_lines([escape_text(f"{lock.pipeline}: {len(lock.tasks)} tasks, {records}")])
        print_lines(
            escape_text(f"  {name:<24} {digest}") for name, digest in sorted(lock.artifacts.items())
        )
        print_lines(line for task in lock.tasks for line in _list_trace_lines(task, does))
    _require_harmless(does, path)
    if not as_json:
        print_lines(["sound: as it was written, and so are its records"])
        print_lines([escape_text(f"{path} is signed by {signer}")] if signer is not None else [])


def _read_traces(lock: "Lock", path: Path) -> Does:
    from autopipe.comparison.locked import read_traces

    return read_traces(lock, path)


def _list_trace_lines(task: "LockedTask", does: Does) -> Iterator[str]:
    """Yield the steps of a task's trace, or that they are unknown."""
    from autopipe.comparison.text import format_steps

    if not isinstance(task.schedule, str):
        return
    name = escape_text(task.name)
    if task.workload not in does:
        yield f"{name}: {task.schedule}; what it does is in the records, which are not beside it"
        return
    yield f"{name}: {task.schedule}"
    yield from format_steps(does[task.workload], _WIDTH)


def _require_harmless(does: Does, lock: Path) -> None:
    """Raise LockError for a lock with records that contain forbidden steps."""
    from autopipe.traces.wording import is_refusal

    wrong = [f"workload {w}: {steps[0]}" for w, steps in does.items() if is_refusal(steps)]
    if wrong:
        raise LockError("\n".join([f"{lock}: its records hold what no schedule needs:", *wrong]))


def _describe_equality(examined: "Examined", locked: "Lock", name: str) -> str:
    build = examined.find_build(locked.artifacts)
    if build is None:
        return f"equal to {name}"
    return escape_text(
        f"the build for {build} is equal to {name}; others were not compared with it"
    )


def _to_signer_dict(signer: "Signer | None") -> dict[str, str] | None:
    return None if signer is None else signer._asdict()


def _list_lines(examined: "Examined") -> Iterator[str]:
    from autopipe.config.dimension import format_sizes
    from autopipe.packaging.variants import list_builds

    needs = examined.needs
    yield f"{examined.name}: format {examined.format}, sha256 {examined.sha256}"
    for name, file in sorted(examined.files.items()):
        yield f"  {name:<24} {file.size:>12}  {file.sha256}"
    yield f"runs with {', '.join(f'{name} {version}' for name, version in needs.runtime.items())}"
    for _, build in list_builds(needs):
        processor = build.processor
        machine = filter(None, [processor.machine, processor.mcpu, processor.gpu])
        yield f"compiled for {' '.join(machine)}"
        yield f"compared with {build.verification or 'nothing'}"
    for name, dimension in needs.signature.dimensions.items():
        yield f"takes {name} {dimension.range_text}"
    for entry in needs.signature.entries:
        yield f"{entry.library} is for {format_sizes(entry.sizes)}"
    yield f"sound: {len(examined.files)} files, each as the manifest says"
