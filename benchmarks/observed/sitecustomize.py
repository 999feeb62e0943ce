"""Loaded by Python before the server that latency.py measures: notes what the collector does.

Each collection adds a line to the file named by ORCHID_BENCH_COLLECTIONS: generation, milliseconds.
These are of processor time, so that what others do on the machine does not count.
"""

import gc
import os
import time
from pathlib import Path
from typing import Any


class Notes:
    """Told by the collector when it starts and when it stops."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", buffering=1)
        self._started = 0.0

    def __call__(self, phase: str, info: dict[str, Any]) -> None:
        now = time.thread_time()
        if phase == "start":
            self._started = now
        else:
            self._file.write(f"{info['generation']} {(now - self._started) * 1000:.3f}\n")


gc.callbacks.append(Notes(Path(os.environ["ORCHID_BENCH_COLLECTIONS"])))
