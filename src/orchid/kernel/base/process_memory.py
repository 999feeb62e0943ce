"""Memory: fewer garbage collections, huge pages, and freed memory returned to the system.

`prepare` is called before the server is imported and before objects are loaded, and `settle` after
that, before the first request; `enlarge_pages` soon after, in a thread; `give_back` after many new
connections. All are optional: where the system does not support them, the server runs a tenth
slower and needs somewhat more memory.
"""

import ctypes
import gc
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

# New objects between two garbage collections. A collection of 5,000 objects blocks the server for a
# millisecond, and for ten when the processor's clock is slow; with this number, for half of that.
YOUNG_OBJECTS: Final = 2_000

_ARENAS: Final = -8  # M_ARENA_MAX of mallopt(3)
_LARGE_PAGE: Final = 2 << 20
_COLLAPSE: Final = 25  # MADV_COLLAPSE of Linux 6.1 and later
_MAPPINGS: Final = Path("/proc/self/maps")


def prepare() -> None:
    """Disable garbage collection during a start, which allocates much and discards little.

    All threads share one heap: memory that one has freed another can use. They rarely allocate at
    the same time, since the interpreter runs one of them at a time.
    """
    gc.disable()
    with suppress(OSError, AttributeError):  # not every C library has it
        ctypes.CDLL(None).mallopt(_ARENAS, 1)


def settle() -> None:
    """Exempt the objects of the start from garbage collection.

    Requests create many small objects and hardly any cycles.
    """
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, 200, 50)
    gc.enable()


def enlarge_pages() -> None:
    """Move the objects of the start to huge pages, without holding the interpreter lock.

    Requests read memory all over the heap: with small pages, address translation in a virtual
    machine takes longer than the reads.
    """
    if sys.platform == "linux":
        with suppress(OSError, AttributeError, ValueError):
            _enlarge_pages()


def give_back() -> None:
    """Return freed memory to the system.

    A thousand concurrent handshakes need thirty megabytes for a moment, and fragment the heap.
    """
    with suppress(OSError, AttributeError):  # not every C library has it
        ctypes.CDLL(None).malloc_trim(0)


def _enlarge_pages() -> None:
    advise = ctypes.CDLL(None).madvise
    advise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    for start, end in heaps(_MAPPINGS.read_text("ascii", "replace")):
        for page in range(-(-start // _LARGE_PAGE), end // _LARGE_PAGE):
            # Refused for empty ranges and by older systems; neither matters.
            advise(page * _LARGE_PAGE, _LARGE_PAGE, _COLLAPSE)


def heaps(mappings: str) -> Iterator[tuple[int, int]]:
    """The memory areas of the heap: writable, private, and not backed by a file."""
    for line in mappings.splitlines():
        addresses, access, _, _, inode, *name = line.split(maxsplit=5)
        if access == "rw-p" and inode == "0" and name in ([], ["[heap]"]):
            start, _, end = addresses.partition("-")
            yield int(start, 16), int(end, 16)
