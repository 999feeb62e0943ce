"""Split PEM text into its blocks, by the rules of the reference's decoder, in linear time.

Start with `split(data)`. A block must begin at the start of a line; its END label must equal its
BEGIN label; lines with a colon directly after BEGIN are headers; base64 is standard and padded,
blanks ignored; a block that breaks a rule is skipped and the search goes on. Text between blocks
is permitted here and reported, so that a caller may refuse it.

Against whoever sends a megabyte of almost-PEM: the size is checked first, and one expression
finds whole blocks. It cannot go back (possessive repeats), and a body ends at the first dash, so no
byte is looked at for more than one BEGIN.
"""

import base64
import binascii
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from orchid.credentials.refusals import TooMuchPem

MAX_BYTES = 1 << 20
# The smallest real certificate has some 300 bytes of PEM; more blocks than this are an attack.
MAX_BLOCKS = 4096

CERTIFICATE = "CERTIFICATE"
CERTIFICATE_REQUEST = "CERTIFICATE REQUEST"

_BLANKS = b" \t\r\n"
_MAX_HEADERS = 64
_BLOCK = re.compile(
    rb"\n-----BEGIN ([^\n]{0,1000})-----[ \t]*\r?"  # a longer label is tried at every dash
    rb"((?:\n[^-\n:][^\n:]*:[^\n]*)*+)"  # headers
    rb"(\n[A-Za-z0-9+/= \t\r\n]*+)"  # base64, up to the first other character
    rb"(?<=\n)-----END \1-----[ \t]*\r?(?=\n|\Z)"
)


@dataclass(frozen=True, slots=True)
class Block:
    """One block: what its label says, its headers if any, the bytes, and where it stood."""

    label: str
    headers: tuple[tuple[str, str], ...]
    data: bytes = field(repr=False)  # may be a private key
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Document:
    """All blocks of a text, and whether anything but blanks stands outside of them."""

    blocks: tuple[Block, ...]
    text_outside: bool


def split(
    text: bytes | str, *, max_bytes: int = MAX_BYTES, max_blocks: int = MAX_BLOCKS
) -> Document:
    """Find every block of a text."""
    data = _bounded(text, max_bytes)
    blocks = tuple(_scan(data, max_blocks))
    return Document(blocks, _has_text_outside(data, blocks))


def first(text: bytes | str, *, max_bytes: int = MAX_BYTES) -> Block | None:
    """Find the first block of a text, whatever follows it."""
    return next(_scan(_bounded(text, max_bytes), MAX_BLOCKS), None)


def encode(label: str, data: bytes) -> bytes:
    """Write one block, 64 characters a line."""
    body = base64.b64encode(data)
    lines = [body[i : i + 64] for i in range(0, len(body), 64)]
    name = label.encode("ascii")
    return b"\n".join((b"-----BEGIN %b-----" % name, *lines, b"-----END %b-----" % name, b""))


def _bounded(text: bytes | str, max_bytes: int) -> bytes:
    # Characters are at least a byte each, so an oversized text is refused before it is copied.
    if len(text) > max_bytes:
        raise TooMuchPem(f"PEM text of more than {max_bytes} bytes")
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    if len(data) > max_bytes:
        raise TooMuchPem(f"PEM text of more than {max_bytes} bytes")
    return data


def _scan(data: bytes, max_blocks: int) -> Iterator[Block]:
    # With a newline in front, every block begins after one; offsets stay those of the text,
    # because a match begins one before the block.
    for count, found in enumerate(_BLOCK.finditer(b"\n" + data)):
        if count == max_blocks:
            raise TooMuchPem(f"more than {max_blocks} PEM blocks")
        label, headers, text = found.groups()
        body = _body(text)
        if body is not None:
            yield Block(
                label=label.decode("utf-8", "replace"),
                headers=_headers(headers),
                data=body,
                start=found.start(),
                stop=found.end() - 1,
            )


def _headers(text: bytes) -> tuple[tuple[str, str], ...]:
    if not text:
        return ()
    lines = text.split(b"\n", _MAX_HEADERS + 1)[1 : _MAX_HEADERS + 1]
    pairs = (line.decode("utf-8", "replace").partition(":") for line in lines)
    return tuple((key.strip(), value.strip()) for key, _, value in pairs)


def _body(text: bytes) -> bytes | None:
    try:
        return binascii.a2b_base64(text.translate(None, _BLANKS), strict_mode=True)
    except binascii.Error:
        return None


def _has_text_outside(data: bytes, blocks: tuple[Block, ...]) -> bool:
    position = 0
    for block in blocks:
        if data[position : block.start].strip(_BLANKS):
            return True
        position = block.stop
    return bool(data[position:].strip(_BLANKS))
