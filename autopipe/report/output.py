"""Text to a stream that may be closed, or know fewer characters than the text has."""

from typing import TextIO

from autopipe.host.refusal import SHORT


class Output:
    """A stream that never raises: when its reader is gone, a run goes on without it."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self.refused: str | None = None
        """Why what was written is not all there, where a disk or a limit is to blame."""

    def write(self, text: str) -> None:
        """Write `text` at once; what the stream can not encode is written as in Python source."""
        if self._stream is None:
            return
        encoding = self._stream.encoding or "ascii"
        try:
            self._stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
            self._stream.flush()
        except (OSError, ValueError) as error:  # the reader closed its end, or somebody closed ours
            self._stream = None
            if isinstance(error, OSError) and error.errno in SHORT:
                self.refused = error.strerror

    def flush(self) -> None:
        """Do nothing, because `write` writes at once; rich calls it, as of any file."""
