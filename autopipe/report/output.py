"""Write text to a stream that may be closed, or lack characters of the text."""

from typing import TextIO

from autopipe.host.refusal import SHORT


class Output:
    """A stream that never raises: when its reader is gone, a run continues without it."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self.refused: str | None = None
        """The reason why output is incomplete, such as a full disk or a limit."""

    def write(self, text: str) -> None:
        """Write `text` immediately; characters that the stream cannot encode are escaped."""
        if self._stream is None:
            return
        encoding = self._stream.encoding or "ascii"
        try:
            self._stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
            self._stream.flush()
        except (OSError, ValueError) as error:  # either end was closed
            self._stream = None
            if isinstance(error, OSError) and error.errno in SHORT:
                self.refused = error.strerror

    def flush(self) -> None:
        """Do nothing, because `write` is unbuffered; rich calls it on any file."""
