"""The journal of a tuning session, so that a resumed run spends the rest of its budget."""

import json
import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any


@dataclass(frozen=True, slots=True)
class Session:
    """A tuning session, which interruptions do not end."""

    path: Path
    name: str
    """Marks its records in the store."""
    spent: float
    """Seconds that earlier, interrupted runs took."""
    started: float
    """When this run began, by the monotonic clock."""

    @classmethod
    def resume(cls, folder: Path) -> "Session":
        """Continue the session whose journal is in the folder, or begin one."""
        path = folder / "session.json"
        known = _read(path)
        name = known.get("session")
        spent = known.get("seconds")
        session = cls(
            path,
            name if isinstance(name, str) else secrets.token_hex(8),
            float(spent) if isinstance(spent, int | float) and spent > 0 else 0.0,
            monotonic(),
        )
        session.save()
        return session

    @property
    def elapsed(self) -> float:
        """Seconds this session has taken, all its runs together."""
        return self.spent + monotonic() - self.started

    def save(self) -> None:
        """Write down how long the session has taken."""
        temporary = self.path.with_suffix(".tmp")
        content = {"session": self.name, "seconds": self.elapsed}
        with temporary.open("w", encoding="utf-8") as file:
            json.dump(content, file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self.path)

    def forget(self) -> None:
        """End the session; the next run begins another one."""
        self.path.unlink(missing_ok=True)


def _read(path: Path) -> dict[str, Any]:
    try:
        known = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}
