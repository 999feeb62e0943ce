"""Annotations that the author of a Pod gives to a signer: keys with a domain, a limited size."""

import itertools
from collections.abc import Iterator, Mapping

from orchid.kernel.wire.fields import FieldError, Path, invalid, too_long
from orchid.kernel.wire.rules.metadata import ANNOTATIONS_SIZE, annotations_size
from orchid.kernel.wire.rules.names import qualified_name_errors

_MOST_FINDINGS = 1000


def user_annotation_errors(path: Path, annotations: Mapping[str, str]) -> Iterator[FieldError]:
    yield from itertools.islice(_key_errors(path, annotations), _MOST_FINDINGS)
    if annotations_size(annotations) > ANNOTATIONS_SIZE:
        yield too_long(path, ANNOTATIONS_SIZE)


def _key_errors(path: Path, annotations: Mapping[str, str]) -> Iterator[FieldError]:
    for key in map(str.lower, annotations):
        problems = qualified_name_errors(key)
        for problem in problems:
            yield invalid(path, key, problem)
        if not problems and "/" not in key:
            yield invalid(path, key, 'must be a domain-prefixed key (such as "acme.io/foo")')
