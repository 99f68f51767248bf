"""Text to a stream that may be closed, or know fewer characters than the text has."""

from typing import TextIO


class Output:
    """A stream that never raises: when its reader is gone, a run goes on without it."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream

    def write(self, text: str) -> None:
        """Write `text` at once; what the stream can not encode is written as in Python source."""
        if self._stream is None:
            return
        encoding = self._stream.encoding or "ascii"
        try:
            self._stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
            self._stream.flush()
        except (OSError, ValueError):  # the reader closed its end, or somebody closed ours
            self._stream = None
