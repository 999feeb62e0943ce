"""Checkpoints: the signed size and root of a log; as in C2SP tlog-checkpoint.

An old checkpoint is worth keeping: it shows whether the log was truncated or rewritten since.
`Checkpoint.opened` only accepts signatures of the log's own key.
"""

import base64
import binascii
import re

import msgspec

from orchid.kernel.tlog.merkle import HASH_SIZE
from orchid.kernel.tlog.notes import NoteRefused, NoteSigner, NoteVerifier, text_of

_SIZE = re.compile("0|[1-9][0-9]{0,18}", re.ASCII)


class Checkpoint(msgspec.Struct, frozen=True):
    """Origin, size and root of a log."""

    origin: str
    size: int
    root: bytes

    @property
    def text(self) -> str:
        return f"{self.origin}\n{self.size}\n{base64.b64encode(self.root).decode()}\n"

    def signed(self, signer: NoteSigner) -> bytes:
        return signer.signed(self.text)

    @classmethod
    def opened(cls, note: bytes, verifier: NoteVerifier | NoteSigner) -> "Checkpoint":
        """Parse a signed checkpoint; raises NoteRefused unless a key of this log signed it."""
        checkpoint = cls._parse(verifier.opened(note))
        if checkpoint.origin != verifier.name:
            raise NoteRefused(f"the checkpoint is of {checkpoint.origin!r}, not {verifier.name!r}")
        return checkpoint

    @classmethod
    def claimed(cls, note: bytes) -> "Checkpoint":
        """Parse a checkpoint without verifying its signature."""
        return cls._parse(text_of(note))

    @classmethod
    def _parse(cls, text: str) -> "Checkpoint":
        lines = text.split("\n")
        origin, size, encoded, *extensions = lines[:-1] + [""] * (4 - len(lines))
        if not origin or not _SIZE.fullmatch(size) or "" in extensions:
            raise NoteRefused("the note is not a checkpoint")
        try:
            root = base64.b64decode(encoded, validate=True)
        except (binascii.Error, ValueError):
            raise NoteRefused("the checkpoint's root is malformed") from None
        if len(root) != HASH_SIZE or base64.b64encode(root).decode() != encoded:
            raise NoteRefused("the checkpoint's root is malformed")
        return cls(origin, int(size), root)
