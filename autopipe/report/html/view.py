"""The input of a page's sections."""

from dataclasses import dataclass

from autopipe.report.document import RunReport


@dataclass(frozen=True, slots=True)
class BuildView:
    """One build of a page that may show several."""

    report: RunReport
    prefix: str = ""
    """Prefix of the build's anchors."""

    def anchor(self, name: str) -> str:
        """Return the identifier of an element of this build."""
        return f"{self.prefix}{name}"
