"""Memory is settled without harm, whatever the system offers."""

import subprocess
import sys

from orchid.kernel.base.process_memory import heaps

MAPPINGS = """\
00400000-00401000 r-xp 00000000 fe:00 1234 /usr/bin/python3
0a000000-0a800000 rw-p 00000000 00:00 0    [heap]
ffff80000000-ffff80200000 rw-p 00000000 00:00 0
ffff90000000-ffff90200000 rw-s 00000000 00:01 77 /memfd:shared (deleted)
ffff90200000-ffff90400000 rw-p 00000000 fe:00 88 /usr/lib/with a blank.so
ffffa0000000-ffffa0200000 ---p 00000000 00:00 0
ffffb0000000-ffffb0200000 rw-p 00000000 00:00 0 [stack]
"""


def test_only_the_programs_own_data_is_moved() -> None:
    """Files, shared memory, guards and stacks are left as they are."""
    assert list(heaps(MAPPINGS)) == [(0x0A000000, 0x0A800000), (0xFFFF80000000, 0xFFFF80200000)]


def test_settled_process_keeps_its_data() -> None:
    """In a process of its own, since what is settled stays so."""
    program = (
        "import gc, hashlib\n"
        "import orchid.kernel.base.process_memory as memory\n"
        "memory.prepare()\n"
        "assert not gc.isenabled()\n"
        "data = [str(n) * 20 for n in range(50_000)]\n"
        "before = hashlib.sha256(''.join(data).encode()).hexdigest()\n"
        "memory.settle()\n"
        "memory.enlarge_pages()\n"
        "assert hashlib.sha256(''.join(data).encode()).hexdigest() == before\n"
        "print(gc.get_freeze_count() > 0, gc.get_threshold()[0] == memory.YOUNG_OBJECTS,\n"
        "      gc.isenabled())\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert done.stdout.split() == ["True", "True", "True"]
