"""What a section of a page is made from."""

from dataclasses import dataclass

from autopipe.report.document import RunReport


@dataclass(frozen=True, slots=True)
class BuildView:
    """A build on a page, which may show several."""

    report: RunReport
    prefix: str = ""
    """What the anchors of the build begin with."""

    def anchor(self, name: str) -> str:
        """Return the identifier of an element of this build."""
        return f"{self.prefix}{name}"
