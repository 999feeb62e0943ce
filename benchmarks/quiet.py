"""A machine as quiet as a program inside of it can make it, for measuring latency.

`go_first`: processes of the machine itself (its init, the kernel's own memory keeping) take a core
for 2 to 5 ms several times a second. With real-time priority they wait.

`awake`: a virtual core with nothing to do is given back to the host, which returns it late; a
server at half of its rate has nothing to do thousands of times a second. A process that runs only
when nobody else wants the core keeps it, as the kernel's idle=poll does.
"""

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager

_PRIORITY = 5
_LAST_OF_ALL = """
import os, sys
os.sched_setaffinity(0, {int(sys.argv[1])})
os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
print(flush=True)
while True:
    pass
"""


def go_first() -> bool:
    """Run before others from now on, with all that is started; False if that is not permitted."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(_PRIORITY))
    except PermissionError:
        return False
    return True


@contextmanager
def awake(cores: Iterable[int]) -> Iterator[None]:
    """Keep cores from resting for as long as the block lasts."""
    with ExitStack() as started:
        for core in cores:
            command = [sys.executable, "-c", _LAST_OF_ALL, str(core)]
            process = subprocess.Popen(command, stdout=subprocess.PIPE)
            started.enter_context(process)
            started.callback(process.kill)
            assert process.stdout is not None
            process.stdout.readline()  # it is out of the way of others now
        yield
