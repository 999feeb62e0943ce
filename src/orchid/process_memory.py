"""Memory: fewer garbage collections, huge pages, and freed memory returned to the system.

`prepare` is called before the server is imported and before objects are loaded, and `settle` when
they are, before the first request; `enlarge_pages` soon after, in a thread; `give_back` when many
connections have come at once. All are optional: where the system does not support them, the server
runs a tenth slower and needs somewhat more memory.
"""

import ctypes
import gc
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

# New objects between two garbage collections. To look at 5,000 takes a millisecond, in which nobody
# is answered, and ten when the processor's clock is slow; to look at these takes half of that.
YOUNG_OBJECTS: Final = 2_000

_ARENAS: Final = -8  # M_ARENA_MAX of mallopt(3)
_LARGE_PAGE: Final = 2 << 20
_COLLAPSE: Final = 25  # MADV_COLLAPSE of Linux 6.1 and later
_MAPPINGS: Final = Path("/proc/self/maps")


def prepare() -> None:
    """Switch garbage collection off during a start, which makes much and discards little.

    All threads share one heap: what one has freed another can use. They rarely ask for memory at
    the same moment, since the interpreter runs one of them at a time.
    """
    gc.disable()
    with suppress(OSError, AttributeError):  # not every C library has it
        ctypes.CDLL(None).mallopt(_ARENAS, 1)


def settle() -> None:
    """Exempt what was loaded at start from garbage collection.

    Requests make many small objects and hardly any cycles.
    """
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, 200, 50)
    gc.enable()


def enlarge_pages() -> None:
    """Put what was loaded at start on huge pages, without holding the interpreter's lock.

    Requests read memory all over the heap: with small pages, address translation in a virtual
    machine takes longer than the reads.
    """
    if sys.platform == "linux":
        with suppress(OSError, AttributeError, ValueError):
            _enlarge_pages()


def give_back() -> None:
    """Return freed memory to the system.

    A thousand handshakes at once need thirty megabytes for a moment, and leave the heap fragmented.
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
        place, access, _, _, inode, *name = line.split(maxsplit=5)
        if access == "rw-p" and inode == "0" and name in ([], ["[heap]"]):
            start, _, end = place.partition("-")
            yield int(start, 16), int(end, 16)
