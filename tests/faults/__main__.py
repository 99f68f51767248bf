"""Writes the pages about faults: `python -m tests.faults`, in the checkout."""

from tests.faults.pages import pages

for path, text in pages():
    path.write_text(text, "utf-8")
