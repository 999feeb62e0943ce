"""What was found out about the extensions of a certificate, kept for all that are alike.

Certificates of one authority for one use differ in the identifier of the key alone. So what their
extensions say, or that they can be read at all, is found out once and known again by the bytes.
"""

from typing import Generic, TypeVar

from orchid.credentials import der
from orchid.credentials.certificate_body import (
    ALTERNATIVE_NAMES,
    BEFORE_KEY_ID,
    EXTENSIONS,
    KEY_ID_OCTETS,
)

V = TypeVar("V")

_USUAL_BYTES, _REMEMBERED = 1024, 64


class AlikeExtensions(Generic[V]):
    """What is known of extensions, given as the bytes behind the key of a certificate.

    Extensions with alternative names are not kept: those differ from certificate to certificate.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[int, bytes, bytes], V] = {}

    def get(self, extensions: bytes) -> V | None:
        return self._known.get(_form(extensions))

    def keep(self, extensions: bytes, found: V) -> None:
        """Keep what was found out about extensions that the X.509 library could read."""
        if len(extensions) > _USUAL_BYTES or ALTERNATIVE_NAMES in extensions:
            return
        place = extensions.find(BEFORE_KEY_ID)
        if place < 0 or _has_extension_at(place, extensions):
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[_form(extensions)] = found


def _form(extensions: bytes) -> tuple[int, bytes, bytes]:
    """What alike extensions have in common: all but the identifier of the key.

    What stands before the identifier tells where it begins, so that equal bytes before it and after
    it mean the same.
    """
    before, _, after = extensions.partition(BEFORE_KEY_ID)
    return len(extensions), before, after[KEY_ID_OCTETS:]


def _has_extension_at(place: int, extensions: bytes) -> bool:
    """Whether an extension begins at a place; the identifier might also be part of another one."""
    for part in der.children(extensions, 0, len(extensions)):
        if part.tag == EXTENSIONS:
            every = der.element(extensions, part.start, part.stop)
            found = der.children(extensions, every.start, every.stop)
            return any(one.begin == place for one in found)
    return False
