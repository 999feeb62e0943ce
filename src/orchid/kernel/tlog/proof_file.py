"""A proof file: an entry is in a log, verifiable offline; C2SP tlog-proof.

It has the signed checkpoint, the index of the entry and the hashes of the inclusion proof. The
entry itself is in the `extra` line, so that the file suffices; `opened` verifies all of it.
"""

import base64
import binascii
import re
from collections.abc import Sequence

import msgspec

from orchid.kernel.tlog.checkpoints import Checkpoint
from orchid.kernel.tlog.merkle import leaf_hash
from orchid.kernel.tlog.notes import NoteVerifier
from orchid.kernel.tlog.proofs import ProofRefused, check_inclusion

FIRST_LINE = "c2sp.org/tlog-proof@v1"
MAX_FILE = 1 << 20

_INDEX = re.compile("index (0|[1-9][0-9]{0,18})", re.ASCII)


class ProofFile(msgspec.Struct, frozen=True):
    """The content of a proof file, not verified; see `opened`."""

    entry: bytes
    index: int
    hashes: Sequence[bytes]
    note: bytes

    def encode(self) -> bytes:
        lines = [FIRST_LINE, f"extra {_text(self.entry)}", f"index {self.index}"]
        lines += [_text(each) for each in self.hashes]
        return ("\n".join(lines) + "\n\n").encode() + self.note

    @classmethod
    def parse(cls, data: bytes) -> "ProofFile":
        """Parse a file in this format; raises ProofRefused."""
        if len(data) > MAX_FILE:
            raise ProofRefused(f"a proof has at most {MAX_FILE} bytes")
        head, blank, note = data.partition(b"\n\n")
        try:
            first, extra, index, *hashes = head.decode().split("\n")
        except ValueError:
            raise ProofRefused("this is not a proof with its entry in it") from None
        match = _INDEX.fullmatch(index)
        if not blank or first != FIRST_LINE or not extra.startswith("extra ") or match is None:
            raise ProofRefused("this is not a proof with its entry in it")
        entry = _bytes(extra.removeprefix("extra "))
        return cls(entry, int(match[1]), [_bytes(each) for each in hashes], note)

    def opened(self, verifier: NoteVerifier) -> Checkpoint:
        """Verify the signature and the inclusion; raises NoteRefused or ProofRefused."""
        checkpoint = Checkpoint.opened(self.note, verifier)
        leaf = leaf_hash(self.entry)
        check_inclusion(leaf, self.index, checkpoint.size, self.hashes, checkpoint.root)
        return checkpoint


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ProofRefused("base64 in the proof is malformed") from None
