"""Validation of the keys of a user's extra: `key_errors`, for all keys that clients choose."""

import re
from collections.abc import Iterator
from typing import Final

from orchid.kernel.wire.fields import FieldError, Path, invalid, required
from orchid.kernel.wire.rules.names import subdomain_errors

_PATH_TEXT: Final = r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+"
_is_path = re.compile(_PATH_TEXT).fullmatch


def key_errors(field: Path, key: str) -> Iterator[FieldError]:
    """A domain, a slash and the characters of a URL path: `acme.io/foo`."""
    domain, _, path = key.partition("/")
    if not key:
        yield required(field)
    elif not domain or not path:
        yield invalid(field, key, 'must be a domain-prefixed path (such as "acme.io/foo")')
    else:
        for text in subdomain_errors(domain):
            yield invalid(field, domain, text)
        if not _is_path(path):
            text = f"Invalid path (regex used for validation is '{_PATH_TEXT}')"
            yield invalid(field, path, text)
