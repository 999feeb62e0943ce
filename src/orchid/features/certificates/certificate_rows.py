"""CertificateRows: the searched properties of all certificates, in the order of their ends.

The rows are in blocks of at most `LARGEST_BLOCK`, and a block has a list or an array for each
property: an object for each row would take twice the memory. `row_of` makes the row of a record; it
decodes only the properties that are searched. Start reading at `CertificateRows.put`.
"""

import sys
from array import array
from bisect import bisect_left, bisect_right
from typing import Any, Final, NamedTuple

import msgspec

from orchid.kernel.engine.cache.entry import Entry
from orchid.kernel.wire.meta import Time

LARGEST_BLOCK: Final = 1024
MOST_SHARED: Final = 1_000
FOREVER: Final = sys.float_info.max  # JSON has no infinity


class Origin(NamedTuple):
    """Properties that many certificates share."""

    signer: str
    approver: str
    policy: str
    cluster: str
    authority_key: str


class Row(NamedTuple):
    """The searched properties of one record."""

    end: float
    key: str  # of the record in the cache
    serial_at: int  # where the serial number begins in the key; its length if it is in the text
    text: str  # subject, names, requester, request and serial number, in lower case, by line
    requester: str
    origin: Origin
    issued: float
    is_revoked: bool
    likeness: int  # equal for certificates of the same signer, subject and names
    revision: int


class RowBlock:
    """Adjacent rows by property; each column has one value for each row."""

    def __init__(self) -> None:
        self.ends = array("d")
        self.keys: list[str] = []
        self.serials_at = array("H")
        self.texts: list[str] = []
        self.requesters: list[str] = []
        self.origins: list[Origin] = []
        self.issued = array("d")
        self.revoked = bytearray()
        self.likenesses = array("q")
        self.revisions = array("q")
        self.columns: tuple[Any, ...] = (  # in the order of the fields of a row
            self.ends, self.keys, self.serials_at, self.texts, self.requesters, self.origins,
            self.issued, self.revoked, self.likenesses, self.revisions,
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def first(self) -> tuple[float, str]:
        return self.ends[0], self.keys[0]

    def insert(self, row: Row) -> None:
        low, high = bisect_left(self.ends, row.end), bisect_right(self.ends, row.end)
        at = bisect_left(self.keys, row.key, low, high)
        for column, value in zip(self.columns, row, strict=True):
            column.insert(at, value)

    def remove(self, key: str) -> None:
        at = self.keys.index(key)
        for column in self.columns:
            del column[at]

    def split(self) -> "RowBlock":
        """Move the second half into another block."""
        half, other = len(self) // 2, RowBlock()
        for column, others in zip(self.columns, other.columns, strict=True):
            others.extend(column[half:])
            del column[half:]
        return other


class CertificateRows:
    """The rows of all certificates; `blocks` has them in the order of (end, key)."""

    def __init__(self) -> None:
        self.blocks: list[RowBlock] = []
        self._block_of: dict[str, RowBlock] = {}

    def __len__(self) -> int:
        return len(self._block_of)

    def __contains__(self, key: str) -> bool:
        return key in self._block_of

    def put(self, row: Row) -> None:
        """Add a row, in place of one with the same key."""
        self.remove(row.key)
        blocks = self.blocks
        at = bisect_right(blocks, (row.end, row.key), key=lambda block: block.first) - 1
        if at < 0:
            at = 0
            if not blocks:
                blocks.append(RowBlock())
        block = blocks[at]
        block.insert(row)
        self._block_of[row.key] = block
        if len(block) > LARGEST_BLOCK:
            other = block.split()
            blocks.insert(at + 1, other)
            self._block_of.update(dict.fromkeys(other.keys, other))

    def remove(self, key: str) -> None:
        """Remove the row of a key, if there is one."""
        block = self._block_of.pop(key, None)
        if block is not None:
            block.remove(key)
            if not block:
                self.blocks.remove(block)


# -- records ---------------------------------------------------------------------------------------


class _User(msgspec.Struct):
    username: str = ""
    policy: str = ""


class _Named(msgspec.Struct):
    name: str = ""


class _Spec(msgspec.Struct, rename="camel"):
    signer_name: str = ""
    serial_number: str = ""
    subject: str = ""
    names: tuple[str, ...] = ()
    authority_key: str = ""
    not_after: Time | None = None
    request: _Named = msgspec.field(default_factory=_Named)
    requester: _User = msgspec.field(default_factory=_User)
    approver: _User = msgspec.field(default_factory=_User)
    cluster: str = ""


class _Meta(msgspec.Struct, rename="camel"):
    creation_timestamp: Time | None = None


class _Revoked(msgspec.Struct):
    """Its presence is enough."""


class _Status(msgspec.Struct):
    revoked: _Revoked | None = None


class _Record(msgspec.Struct):
    """The searched part of an IssuedCertificate."""

    metadata: _Meta
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


_decode = msgspec.json.Decoder(_Record).decode


class RowMaker:
    """Makes rows; equal values of adjacent rows share one object."""

    def __init__(self) -> None:
        self._shared: dict[Any, Any] = {}

    def row_of(self, entry: Entry[Any]) -> Row:
        record = _decode(entry.data)
        spec = record.spec
        serial, created = spec.serial_number.casefold(), record.metadata.creation_timestamp
        in_key = entry.key.endswith(f"/{serial}")
        pieces = [*spec.names, spec.requester.username, spec.request.name]
        text = spec.subject.casefold()
        for piece in pieces if in_key else [*pieces, serial]:
            if (folded := piece.casefold()) not in text:
                text = f"{text}\n{folded}"
        origin = Origin(
            spec.signer_name,
            spec.approver.username,
            spec.approver.policy,
            spec.cluster,
            spec.authority_key,
        )
        return Row(
            end=spec.not_after.timestamp() if spec.not_after else FOREVER,
            key=entry.key,
            serial_at=len(entry.key) - (len(serial) if in_key else 0),
            text=text,
            requester=self._share(spec.requester.username),
            origin=self._share(origin),
            issued=created.timestamp() if created else 0.0,
            is_revoked=record.status.revoked is not None,
            likeness=hash((spec.signer_name, spec.subject, tuple(sorted(spec.names)))),
            revision=entry.revision,
        )

    def _share(self, value: Any) -> Any:
        if len(self._shared) > MOST_SHARED:
            self._shared.clear()
        return self._shared.setdefault(value, value)
