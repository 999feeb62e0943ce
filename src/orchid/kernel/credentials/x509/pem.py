"""Split PEM text into its blocks, by the rules of Kubernetes' decoder, in linear time.

Start with `split(data)`. A block must begin at the start of a line; its END label must equal its
BEGIN label; lines with a colon directly after BEGIN are headers; base64 is standard and padded,
blanks ignored; a block that breaks a rule is skipped and the search goes on. Text between blocks
is permitted and ignored.

Against hostile input, the size is checked first. No block contains the BEGIN of another, so the
text is cut at every BEGIN, up to a limit, and each piece is parsed once.
"""

import base64
import binascii
import re
from collections.abc import Iterator
from typing import NamedTuple

from orchid.kernel.credentials.refusals import TooMuchPem

MAX_BYTES = 1 << 20
# A real certificate has at least 300 bytes of PEM; more blocks, even incomplete, are an attack.
MAX_BLOCKS = 4096

CERTIFICATE = "CERTIFICATE"
CERTIFICATE_REQUEST = "CERTIFICATE REQUEST"
PUBLIC_KEY = "PUBLIC KEY"
REVOCATION_LIST = "X509 CRL"

_BEGIN, _END, _DASHES = b"\n-----BEGIN ", b"\n-----END ", b"-----"
_BLANKS = b" \t\r\n"
_COLON = ord(":")
_MAX_LABEL = 1000  # an error repeats it
_MAX_HEADERS = 64
_HEADERS = re.compile(rb"(?:\n[^-\n:][^\n:]*+:[^\n]*+)*+")
# Exactly one block, as most programs write it.
_SINGLE_BLOCK = re.compile(
    rb"-----BEGIN ([A-Z0-9 ]{1,64})-----\n([A-Za-z0-9+/=\n]++)(?<=\n)-----END \1-----\n?"
)


class Block(NamedTuple):
    """A block: its label, its headers if any, and the bytes."""

    label: str
    headers: tuple[tuple[str, str], ...]
    data: bytes

    def __repr__(self) -> str:
        return f"Block(label={self.label!r})"  # the bytes may be a private key


def split(
    text: bytes | str, *, max_bytes: int = MAX_BYTES, max_blocks: int = MAX_BLOCKS
) -> tuple[Block, ...]:
    """All blocks of a text."""
    data = _bounded(text, max_bytes)
    if single := _single_block(data):
        return (single,)
    return tuple(_scan(data, max_blocks))


def first(text: bytes | str, *, max_bytes: int = MAX_BYTES) -> Block | None:
    """The first block of a text."""
    data = _bounded(text, max_bytes)
    return _single_block(data) or next(_scan(data, MAX_BLOCKS), None)


def encode(label: str, data: bytes) -> bytes:
    """Encode a block, 64 characters per line."""
    body = base64.b64encode(data)
    lines = [body[i : i + 64] for i in range(0, len(body), 64)]
    name = label.encode("ascii")
    return b"\n".join((b"-----BEGIN %b-----" % name, *lines, b"-----END %b-----" % name, b""))


def _bounded(text: bytes | str, max_bytes: int) -> bytes:
    # A character takes at least a byte, so an oversized text is refused before it is copied.
    if len(text) > max_bytes:
        raise TooMuchPem(f"PEM text of more than {max_bytes} bytes")
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    if len(data) > max_bytes:
        raise TooMuchPem(f"PEM text of more than {max_bytes} bytes")
    return data


def _single_block(data: bytes) -> Block | None:
    """Fast path: text that is exactly one plain block."""
    found = _SINGLE_BLOCK.fullmatch(data)
    return _block(found[1], b"", found[2].translate(None, _BLANKS)) if found else None


def _scan(data: bytes, max_blocks: int) -> Iterator[Block]:
    # With a leading newline, every block begins after one.
    pieces = (b"\n" + data).split(_BEGIN, max_blocks + 1)
    for piece in pieces[1 : max_blocks + 1]:
        block = _read(piece)
        if block is not None:
            yield block
    if len(pieces) > max_blocks + 1:
        raise TooMuchPem(f"more than {max_blocks} PEM blocks")


def _read(piece: bytes) -> Block | None:
    """Parse the text between a BEGIN and the next; everything after its END is ignored."""
    start = piece.find(b"\n")
    label = _label(piece[:start])
    if label is None or start < 0:
        return None
    headers = b""
    if _COLON in piece and (match := _HEADERS.match(piece, start)) and match[0]:
        # The newline of the last header does not count as the one before the END line.
        headers, start = match[0], match.end() + 1
    content, _, closing = piece[start:].partition(_END)
    if _label(closing.partition(b"\n")[0]) != label:
        return None
    return _block(label, headers, content.translate(None, _BLANKS))


def _block(label: bytes, headers: bytes, content: bytes) -> Block | None:
    try:
        data = binascii.a2b_base64(content, strict_mode=True)
    except binascii.Error:
        return None
    return Block(label.decode("utf-8", "replace"), _headers(headers) if headers else (), data)


def _label(line: bytes) -> bytes | None:
    """The label in the rest of a BEGIN or END line, which only blanks may follow."""
    line = line.removesuffix(b"\r").rstrip(b" \t")
    if len(line) > _MAX_LABEL + len(_DASHES) or not line.endswith(_DASHES):
        return None
    return line[: -len(_DASHES)]


def _headers(text: bytes) -> tuple[tuple[str, str], ...]:
    lines = text.split(b"\n", _MAX_HEADERS + 1)[1 : _MAX_HEADERS + 1]
    pairs = (line.decode("utf-8", "replace").partition(":") for line in lines)
    return tuple((key.strip(), value.strip()) for key, _, value in pairs)
