"""Folders that others wrote: sound digests of files that are not."""

import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

WORDS = ("", "-1", "0", "1", "3", "99999999999", "9223372036854775807", "99999999999999999999", "%",
         "%4", "n+n+n+n+n+n", "1+1", "3..2", "2..", "..2", "-1..2", "1..2..3",
         "0..9223372036854775807", "float64", "bfloat16", "x" * 400)  # fmt: skip
"""What takes the place of a word of `model.txt`."""


def forge_folder(folder: Path, out: Path, change: Callable[[Path], None]) -> Path:
    """Link a folder under another path, change it, and make its list of digests anew."""
    out.mkdir(parents=True)
    for path in folder.iterdir():
        if path.is_dir():
            (out / path.name).symlink_to(path)
        else:
            os.link(path, out / path.name)
    change(out)
    sums = (folder / "SHA256SUMS").read_text().splitlines()
    (out / "SHA256SUMS").unlink()
    lines = []
    for line in sums:
        digest, name = line.split("  ")
        if "/" not in name and (out / name).exists():
            digest = hashlib.sha256((out / name).read_bytes()).hexdigest()
        lines.append(f"{digest}  {name}\n")
    (out / "SHA256SUMS").write_text("".join(lines))
    return out


def replace_file(name: str, data: bytes) -> Callable[[Path], None]:
    """Return a change that writes a file."""

    def change(folder: Path) -> None:
        (folder / name).unlink()
        (folder / name).write_bytes(data)

    return change


def remove_file(name: str) -> Callable[[Path], None]:
    """Return a change that leaves a file out."""
    return lambda folder: (folder / name).unlink()


def edit_lines(text: str, most: int) -> Iterator[str]:
    """Yield `model.txt` with a line left out, doubled, cut or extended, and with a word replaced.

    Of each kind of line the first `most` are changed.
    """
    lines = text.splitlines()
    seen: dict[str, int] = {}
    for place, line in enumerate(lines):
        words = line.split(" ")
        seen[words[0]] = seen.get(words[0], 0) + 1
        if seen[words[0]] > most:
            continue
        changed = [[], [line, line], [line[: len(line) // 2]], [f"{line} 1"], [f"{line} "]]
        changed += [
            [" ".join([*words[:at], other, *words[at + 1 :]])]
            for at in range(len(words))
            for other in WORDS
        ]
        for new in changed:
            yield "\n".join([*lines[:place], *new, *lines[place + 1 :], ""])
