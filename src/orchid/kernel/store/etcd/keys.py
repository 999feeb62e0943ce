"""The keys of the store in etcd.

    /orchid/<key>     a record: everything between `first` and `end`
    /orchid#mark      written by every commit: its revision is the newest of ours, see store.py
    /orchid#compactor written by the compacting server, each time
    /orchid#nothing   never written: read if only the response's header or error counts

The others are outside of the records' range, so that no read or watch of records includes them.
UTF-8 sorts as code points do, so etcd's order is the store's order.
"""

from orchid.kernel.store.interface import Span, StoreUnusable


class Keyspace:
    """The keys under one prefix."""

    def __init__(self, prefix: str) -> None:
        stem = prefix.rstrip("/").encode()
        if not stem or b"\0" in stem:
            raise StoreUnusable(f"etcd: not a prefix for keys: {prefix!r}")
        self.first = stem + b"/"
        self.end = stem + b"0"  # the byte after the slash
        self.mark = stem + b"#mark"
        self.compactor = stem + b"#compactor"
        self.nothing = stem + b"#nothing"

    def outer(self, key: str) -> bytes:
        """The key in etcd."""
        return self.first + key.encode()

    def inner(self, key: bytes) -> str:
        """The key in the store; one written by another program may not be UTF-8."""
        return key[len(self.first) :].decode(errors="surrogateescape")

    def bounds(self, span: Span) -> tuple[bytes, bytes]:
        """The span as etcd's `key` and `range_end`; an empty end means one key alone."""
        start = self.outer(span.start)
        if span.start and span.end == span.start + "\0":
            return start, b""
        return start, self.outer(span.end) if span.end else self.end
