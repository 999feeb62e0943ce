"""Strict types and the full validation agree on every body: what is accepted, and as what.

tests/fuzz has the same comparison for bytes that nobody chose.
"""

import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchid.kernel.wire.codec import documents
from tests.unit.kernel.wire.codec.spellings import (
    LARGE,
    NUMBERS,
    OTHERS,
    TEXTS,
    read,
    read_thoroughly,
    spelled,
)
from tests.unit.kernel.wire.protobuf_samples import KINDS, objects

TYPES = sorted(KINDS)
VALUES = (*NUMBERS, *LARGE, *OTHERS, *map(json.dumps, TEXTS))


def assert_agree(type_: type[Any], body: bytes) -> None:
    decoder = documents.decoder_of(type_)
    assert read(decoder, body) == read_thoroughly(decoder, body), body


@pytest.mark.parametrize("name", TYPES)
def test_every_field_means_the_same_in_both_with_every_odd_value(name: str) -> None:
    """Of the kind itself and of its metadata and spec, one field at a time."""
    type_ = KINDS[name]
    schema = documents.decoder_of(type_).schema
    for value in VALUES:
        for field, below in schema.fields.items():
            assert_agree(type_, f'{{"{field}":{value}}}'.encode())
            for inner in getattr(below.node, "fields", ()):
                assert_agree(type_, f'{{"{field}":{{"{inner}":{value}}}}}'.encode())


@pytest.mark.parametrize("name", TYPES)
@settings(max_examples=15)
@given(data=st.data(), seed=st.integers(0, 2**32), oddity=st.sampled_from([0.0, 0.02, 0.1, 0.3]))
def test_documents_mean_the_same_in_both_however_they_are_spelled(
    name: str, data: st.DataObject, seed: int, oddity: float
) -> None:
    """Escaped keys, blanks, repeated and unknown fields, nulls, other numbers and times."""
    type_ = KINDS[name]
    value = documents.to_builtins(data.draw(objects(type_)))

    assert_agree(type_, spelled(value, random.Random(seed), oddity).encode())


def test_an_escaped_colon_hides_no_repeated_key() -> None:
    """Two texts with as many colons may have different numbers of keys."""
    body = rb'{"metadata":{"name":"a","name":"b","labels":{"x":"\u003a"}}}'

    found, findings = documents.decoder_of(KINDS["ServiceAccount"]).decode(body)

    assert (found.metadata.name, findings) == ("b", ['duplicate field "metadata.name"'])
