"""Names of SPIFFE trust domains (SPIFFE-ID, section 2.1)."""

import re
from collections.abc import Iterator
from typing import Final

from orchid.kernel.wire.fields import FieldError, Path, invalid

LONGEST: Final = 255

_is_trust_domain = re.compile(r"[a-z0-9._-]+").fullmatch


def trust_domain_errors(path: Path, name: str) -> Iterator[FieldError]:
    if len(name) > LONGEST or not _is_trust_domain(name):
        text = (
            "a SPIFFE trust domain has lower case letters, digits, dots, dashes and underscores, "
            f"{LONGEST} at most"
        )
        yield invalid(path, name, text)
