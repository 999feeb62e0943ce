"""HAProxy on loopback: one address for several servers, as users put before them.

Each connection goes to the next server that accepts one. HAProxy knows nothing of TLS or HTTP here.
"""

import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.e2e.serving import free_port

PATIENCE = 10.0
CONFIGURATION = """\
defaults
  mode tcp
  timeout connect 2s
  timeout client 1h
  timeout server 1h
  option redispatch 1
  retries 3
  default-server check inter 200ms fall 1 rise 1 on-marked-down shutdown-sessions
listen orchid
  bind 127.0.0.1:{front}
"""


@contextmanager
def balancing(ports: Sequence[int]) -> Iterator[int]:
    """Serve on a port until the block ends."""
    front = free_port()
    lines = [f"  server orchid-{port} 127.0.0.1:{port}" for port in ports]
    text = CONFIGURATION.format(front=front) + "\n".join(lines) + "\n"
    with tempfile.TemporaryDirectory() as folder:
        file, log = Path(folder) / "haproxy.cfg", Path(folder) / "log"
        file.write_text(text)
        with log.open("wb") as out:
            process = subprocess.Popen(
                ["haproxy", "-db", "-f", str(file)], stdout=out, stderr=subprocess.STDOUT
            )
        try:
            _wait_until_open(front, process, log)
            yield front
        finally:
            process.terminate()
            process.wait(PATIENCE)


def _wait_until_open(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    limit = time.monotonic() + PATIENCE
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            if process.poll() is not None or time.monotonic() > limit:
                raise RuntimeError(f"haproxy has not started: {log.read_text()}") from None
            time.sleep(0.05)
        else:
            return
