"""A network that breaks: passes bytes between two ports, up to a number of them.

`python -m tests.support.tcp_proxy PORT MOST MODE` prints the port that it listens on. Then it
`drop`s what comes, `cut`s the connections, or is `slow` from the beginning.
"""

import socket
import sys
import threading
import time
from contextlib import suppress

RATE = 3e5
"""Bytes a second of a slow one."""


class Proxy:
    def __init__(self, behind: int, most: int, mode: str) -> None:
        self.behind, self.left, self.mode = behind, most, mode

    def serve(self) -> None:
        listening = socket.create_server(("127.0.0.1", 0))
        sys.stdout.write(f"{listening.getsockname()[1]}\n")
        sys.stdout.flush()
        while True:
            near, _ = listening.accept()
            far = socket.create_connection(("127.0.0.1", self.behind))
            for pair in ((near, far), (far, near)):
                threading.Thread(target=self.hand_on, args=pair, daemon=True).start()

    def hand_on(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 12):
                self.left -= len(data)
                if self.left < 0 and self.mode == "cut":
                    break
                if self.left < 0 and self.mode == "drop":
                    continue
                if self.mode == "slow":
                    time.sleep(len(data) / RATE)
                sink.sendall(data)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


if __name__ == "__main__":
    port, most, mode = sys.argv[1:]
    Proxy(int(port), int(most), mode).serve()
