"""Signed notes: a text with signature lines, as in C2SP signed-note.

`NoteSigner` signs with one or more Ed25519 keys; `NoteVerifier` verifies and raises `NoteRefused`
for an invalid note. The text form of a verifier is one line (`vkey`). Signatures of unknown keys
are ignored, as the format requires.
"""

import base64
import binascii
import re
from collections.abc import Iterable
from hashlib import sha256
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

ED25519: Final = b"\x01"
MAX_NOTE: Final = 1 << 16  # bytes; larger texts are no notes of a log
MAX_SIGNATURES: Final = 64

_BAD_NAME = re.compile(r"[\s+]|[\x00-\x1f]")
_DASH = "\u2014"  # an em dash; its name would need the table of all characters
_SIGNATURE = re.compile(f"{_DASH} ([^ ]+) ([A-Za-z0-9+/]+={{0,2}})")


class NoteRefused(Exception):
    """A note is malformed, or not signed by the expected key."""


class NoteVerifier:
    """The signer of a note: a name and a public key."""

    def __init__(self, name: str, key: Ed25519PublicKey) -> None:
        if not name or _BAD_NAME.search(name):
            raise ValueError(f"a key's name has no space and no plus sign: {name!r}")
        self.name = name
        self._key = key
        self._public = ED25519 + key.public_bytes_raw()
        self.id = sha256(name.encode() + b"\n" + self._public).digest()[:4]

    @property
    def vkey(self) -> str:
        return f"{self.name}+{self.id.hex()}+{base64.b64encode(self._public).decode()}"

    @classmethod
    def parse(cls, vkey: str) -> "NoteVerifier":
        """Parse a `vkey` line; raises NoteRefused."""
        name, _, rest = vkey.strip().partition("+")
        given_id, _, encoded = rest.partition("+")
        public = _decoded(encoded)
        if public[:1] != ED25519 or len(public) != 1 + 32:
            raise NoteRefused(f"the key of {name!r} is not an Ed25519 key")
        try:
            verifier = cls(name, Ed25519PublicKey.from_public_bytes(public[1:]))
        except ValueError as problem:
            raise NoteRefused(str(problem)) from None
        if verifier.id.hex() != given_id:
            raise NoteRefused(f"the key of {name!r} has the id {verifier.id.hex()}, not {given_id}")
        return verifier

    def opened(self, note: bytes) -> str:
        """The text of a note with a valid signature of this key."""
        text, signatures = _parse(note)
        mine = [
            signature_line[4:]
            for name, signature_line in signatures
            if (name, signature_line[:4]) == (self.name, self.id)
        ]
        if not mine:
            raise NoteRefused(f"the note is not signed by {self.name}+{self.id.hex()}")
        try:
            for signature in mine:
                self._key.verify(signature, text.encode())
        except InvalidSignature:
            raise NoteRefused(f"the signature of {self.name} does not match the note") from None
        return text

    def has_signed(self, note: bytes) -> bool:
        """Whether a note has a valid signature of this key."""
        try:
            self.opened(note)
        except NoteRefused:
            return False
        return True


class NoteSigner:
    """Signs notes under a name, with each of its keys; never shows a private key."""

    def __init__(self, name: str, *keys: Ed25519PrivateKey) -> None:
        self._keys = keys
        self.name = name
        self.verifiers = tuple(NoteVerifier(name, key.public_key()) for key in keys)

    @property
    def verifier(self) -> NoteVerifier:
        return self.verifiers[0]

    def only(self, vkeys: Iterable[str]) -> "NoteSigner":
        """The signer with some of its keys."""
        wanted, pairs = set(vkeys), zip(self._keys, self.verifiers, strict=True)
        return NoteSigner(self.name, *(key for key, one in pairs if one.vkey in wanted))

    def signed(self, text: str) -> bytes:
        if not text.endswith("\n"):
            raise ValueError("the text of a note ends with a newline")
        lines = []
        for key, verifier in zip(self._keys, self.verifiers, strict=True):
            signature = base64.b64encode(verifier.id + key.sign(text.encode())).decode()
            lines.append(f"{_DASH} {self.name} {signature}\n")
        return f"{text}\n{''.join(lines)}".encode()

    def opened(self, note: bytes) -> str:
        """The text of a note with a valid signature of any of the keys."""
        signed = (one for one in self.verifiers if one.has_signed(note))
        return next(signed, self.verifier).opened(note)


def text_of(note: bytes) -> str:
    """The text of a note, without verifying it; for messages only."""
    return _parse(note)[0]


def _parse(note: bytes) -> tuple[str, list[tuple[str, bytes]]]:
    if len(note) > MAX_NOTE:
        raise NoteRefused(f"a note has at most {MAX_NOTE} bytes")
    try:
        whole = note.decode()
    except UnicodeDecodeError:
        raise NoteRefused("the note is not UTF-8 text") from None
    if any(char < " " and char != "\n" for char in whole):
        raise NoteRefused("the note has a control character")
    text, blank, below = whole.rpartition("\n\n")
    if not blank or not below.endswith("\n"):
        raise NoteRefused("the note has no signatures under its text")
    lines = below[:-1].split("\n")
    if len(lines) > MAX_SIGNATURES:
        raise NoteRefused(f"a note has at most {MAX_SIGNATURES} signatures")
    return text + "\n", [_signature(line) for line in lines]


def _signature(line: str) -> tuple[str, bytes]:
    match = _SIGNATURE.fullmatch(line)
    if match is None:
        raise NoteRefused("a line under the note is not a signature")
    signature = _decoded(match[2])
    if len(signature) <= 4:  # noqa: PLR2004 -- of the key's id
        raise NoteRefused("a signature of the note is too short")
    return match[1], signature


def _decoded(encoded: str) -> bytes:
    try:
        data = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise NoteRefused("base64 is malformed") from None
    if base64.b64encode(data).decode() != encoded:
        raise NoteRefused("base64 is not canonical")
    return data
