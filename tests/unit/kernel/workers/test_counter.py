"""The shared counter shows one number to all processes."""

import os
import subprocess
import sys

from orchid.kernel.workers.counter import SharedCounter

READ = (
    "import sys; from orchid.kernel.workers.counter import SharedCounter as C; "
    "print(C.inherit({}).value)"
)


def test_inherited_counter_shows_the_newest_value() -> None:
    """Another process sees what was written last, without asking."""
    counter = SharedCounter.create()
    counter.value = 1
    counter.value = 2**40 + 7

    read = [sys.executable, "-c", READ.format(counter.descriptor)]
    found = subprocess.run(
        read, pass_fds=[counter.descriptor], capture_output=True, check=True,
        env={**os.environ, "PYTHONPATH": "src"},
    )  # fmt: skip
    counter.close()
    counter.close()

    assert int(found.stdout) == 2**40 + 7
