"""Memory: fewer looks by the collector, larger pages, and nothing kept that is of no more use.

`prepare` is called before the objects are loaded and `settle` when they are, before the first
request; `give_back` when many connections have come at once. What they ask of the system is a
favour: where it knows nothing of that, the server runs as well, a tenth slower and somewhat larger.
"""

import ctypes
import gc
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

YOUNG_OBJECTS: Final = 20_000  # made before the collector looks at them

_LARGE_PAGE: Final = 2 << 20
_COLLAPSE: Final = 25  # MADV_COLLAPSE of Linux 6.1 and later
_MAPPINGS: Final = Path("/proc/self/maps")


def prepare() -> None:
    """Have no collector look for garbage among objects that are being loaded: there is none."""
    gc.collect()
    gc.disable()


def settle() -> None:
    """Spare the collector what was loaded at start, and the processor most of its page walks.

    Requests make many small objects and hardly any cycles, and touch memory all over: in a virtual
    machine, finding their small pages takes longer than reading them.
    """
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, 20, 50)
    gc.enable()
    if sys.platform == "linux":
        with suppress(OSError, AttributeError, ValueError):
            _enlarge_pages()


def give_back() -> None:
    """Return what was freed to the system.

    A thousand handshakes at a time need thirty megabytes for a moment, and leave them in pieces
    between what stays.
    """
    with suppress(OSError, AttributeError):  # not every C library can
        ctypes.CDLL(None).malloc_trim(0)


def _enlarge_pages() -> None:
    advise = ctypes.CDLL(None).madvise
    advise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    for start, end in heaps(_MAPPINGS.read_text("ascii", "replace")):
        for page in range(-(-start // _LARGE_PAGE), end // _LARGE_PAGE):
            # Refused where nothing is, or the system does not know how; both may be.
            advise(page * _LARGE_PAGE, _LARGE_PAGE, _COLLAPSE)


def heaps(mappings: str) -> Iterator[tuple[int, int]]:
    """Where the program's own data lies: writable, private, and no file."""
    for line in mappings.splitlines():
        place, access, _, _, inode, *name = line.split(maxsplit=5)
        if access == "rw-p" and inode == "0" and name in ([], ["[heap]"]):
            start, _, end = place.partition("-")
            yield int(start, 16), int(end, 16)
