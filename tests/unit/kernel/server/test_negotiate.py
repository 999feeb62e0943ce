"""The order of Accept clauses, and the form that the best of them gives."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchid.kernel.server.negotiate import (
    JSON,
    LONGEST_ACCEPT,
    PROTOBUF,
    YAML,
    Transform,
    clauses,
    form_of,
    wants_pretty,
)


@pytest.mark.parametrize(
    ("accept", "order"),
    [
        ("a/b, c/d", ["a/b", "c/d"]),
        ("a/b;q=0.1, c/d", ["c/d", "a/b"]),
        ("*/*, a/b;q=0.1", ["a/b", "*/*"]),
        ("a/*, a/b", ["a/b", "a/*"]),
        ("nonsense, *", ["*/*"]),
        ("a/b;q=x, c/d;q=0.5", ["a/b", "c/d"]),
        ("", []),
    ],
)
def test_clauses_are_ordered_as_the_reference_does(accept: str, order: list[str]) -> None:
    """A higher q, or a specific clause behind a wildcard, moves forward."""
    assert [f"{clause.type}/{clause.subtype}" for clause in clauses(accept)] == order


def form(accept: str, *, table: bool = True) -> object:
    found = form_of(accept, table=table, transforms=True)
    return None if found is None else (found.media, found.transform)


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("", (JSON, Transform.NONE)),
        ("application/json;as=Table;g=meta.orch.io;v=v1", (JSON, Transform.TABLE)),
        ("application/yaml;as=Table;g=meta.k8s.io;v=v1beta1", (YAML, Transform.TABLE)),
        (f"{PROTOBUF};as=Table;g=meta.k8s.io;v=v1", None),
        (f"{PROTOBUF};as=PartialObjectMetadata;g=meta.k8s.io;v=v1", (PROTOBUF, Transform.METADATA)),
        ("application/json;as=Table;g=meta.orch.io", None),
        ("application/json;as=Chair;g=meta.orch.io;v=v1", None),
        ("application/json;stream=watch", (JSON, Transform.NONE)),
        ("application/yaml;stream=watch", None),
        ("application/json;stream=other", None),
        ("application/*", (JSON, Transform.NONE)),
        ("text/*", None),
    ],
)
def test_the_form_of_an_answer(accept: str, expected: object) -> None:
    """Media type and transform, or nothing that could be served."""
    assert form(accept) == expected


def test_a_kind_without_columns_has_no_table() -> None:
    """A client that accepts only such a type gets 406."""
    assert form("application/json;as=Table;g=meta.orch.io;v=v1", table=False) is None


@given(st.text(alphabet="*/,;=q01. ab", max_size=LONGEST_ACCEPT))
def test_any_header_is_read(accept: str) -> None:
    """Whatever is sent gives a form or none."""
    form(accept)


@pytest.mark.parametrize(
    ("parameter", "agent", "indented"),
    [
        ("1", "", True), ("T", "", True), ("no", "curl/8", False), ("", "curl/8", True),
        (None, "curl/8", True), (None, "go-client", False),
    ],
)  # fmt: skip
def test_who_wants_it_indented(parameter: str | None, agent: str, indented: bool) -> None:
    """The parameter if it says anything, else what the client is."""
    assert wants_pretty(parameter, agent) is indented
