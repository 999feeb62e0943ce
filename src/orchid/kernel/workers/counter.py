"""The newest revision, in eight bytes of memory that the parent and all workers share.

The parent writes it before any commit is reported; a worker reads it, in a tenth of a microsecond,
to check whether its own objects are up to date. The memory has no name in any file system: a
process can only access it by inheriting the descriptor.
"""

import mmap
import os

from orchid.kernel.store.interface import Revision

SIZE = mmap.PAGESIZE


class SharedCounter:
    """A number that only its owner writes. Create one with `create`, open it with `inherit`."""

    def __init__(self, descriptor: int, *, owned: bool) -> None:
        self.descriptor = descriptor
        self._owned = owned
        self._memory = mmap.mmap(descriptor, SIZE)
        # One aligned word: the processor stores and loads it atomically.
        self._words = memoryview(self._memory).cast("Q")

    @classmethod
    def create(cls) -> "SharedCounter":
        descriptor = os.memfd_create("orchid-revision", os.MFD_CLOEXEC)
        os.ftruncate(descriptor, SIZE)
        return cls(descriptor, owned=True)

    @classmethod
    def inherit(cls, descriptor: int) -> "SharedCounter":
        return cls(descriptor, owned=False)

    @property
    def value(self) -> Revision:
        return self._words[0]

    @value.setter
    def value(self, revision: Revision) -> None:
        self._words[0] = revision

    def close(self) -> None:
        """Release the memory. Idempotent."""
        if not self._memory.closed:
            self._words.release()
            self._memory.close()
            if self._owned:
                os.close(self.descriptor)
