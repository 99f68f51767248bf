"""Files that a page adds, and changes of files that it shows as a diff."""

from pathlib import Path

from tests.docs.blocks import Block


def write(block: Block, folder: Path) -> None:
    """Write the file that a block is."""
    path = folder / block.marks["file"]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(block.text)


def edit(block: Block, folder: Path) -> None:
    """Change a file as a block says; what the block leaves has to be there, once."""
    path = folder / block.marks["edit"]
    lines = block.text.splitlines(keepends=True)
    before = "".join(line[1:] for line in lines if line[0] in " -")
    after = "".join(line[1:] for line in lines if line[0] in " +")
    text = path.read_text()
    assert text.count(before) == 1, f"{block}: {path.name} has other lines now"
    path.write_text(text.replace(before, after))
