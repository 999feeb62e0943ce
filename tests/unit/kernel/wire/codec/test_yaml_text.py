"""YAML: scalars as the reference reads them, duplicate keys with their line, bombs refused."""

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchid.kernel.wire.codec.yaml_text import (
    MOST_DOCUMENTS,
    YamlError,
    dump,
    load,
    load_all,
    load_only,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: 1", {"a": 1}),
        ("a: yes\nb: off\nc: y", {"a": True, "b": False, "c": True}),
        ("a: ~\nb:\nc: null", {"a": None, "b": None, "c": None}),
        ("a: '1'\nb: \"yes\"", {"a": "1", "b": "yes"}),
        (
            "a: 0x1f\nb: 0755\nc: 1_000\nd: -0b11\ne: 0",
            {"a": 31, "b": 493, "c": 1000, "d": -3, "e": 0},
        ),
        ("a: 1.5\nb: 1e3\nc: .5", {"a": 1.5, "b": 1000.0, "c": 0.5}),
        ("a: 2026-01-02\nb: 12:30:45", {"a": "2026-01-02", "b": "12:30:45"}),
        ("a: 089\nb: 1.2.3", {"a": 89.0, "b": "1.2.3"}),
        ("1: a\ntrue: b\n1.5: c", {"1": "a", "true": "b", "1.5": "c"}),
        ("a: &x {b: 1}\nc: *x", {"a": {"b": 1}, "c": {"b": 1}}),
        (
            "a: &x {b: 1, c: 2}\nd:\n  <<: *x\n  c: 3",
            {"a": {"b": 1, "c": 2}, "d": {"b": 1, "c": 3}},
        ),
        ("a: !!str 1\nb: !!int '2'", {"a": "1", "b": 2}),
        ("a: |\n  x\n  y\n", {"a": "x\ny\n"}),
        ("--- a\n--- b\n", "a"),
        ("", None),
        ('{"a": [1, "x"]}', {"a": [1, "x"]}),
        ('# why\n\n  # and how\r\n{"a": [1, "x"]}\n', {"a": [1, "x"]}),
        ("# why\n{a: 1}", {"a": 1}),
        ("{a: 1}", {"a": 1}),
        ("99999999999999999999999", 1e23),
    ],
)
def test_text_reads_as_the_reference_reads_it(text: str, expected: Any) -> None:
    """YAML 1.1, without dates and base-60 numbers; the first document only."""
    assert load(text.encode()) == (expected, [])


@pytest.mark.parametrize(
    ("text", "expected", "found"),
    [
        ("a: 1\nb: 2\na: 3\n", {"a": 3, "b": 2}, ['line 3: key "a" already set in map']),
        ('{"a": 1,\n "a": 2}', {"a": 2}, ['line 2: key "a" already set in map']),
        ('# why\n{"a": 1,\n "a": 2}', {"a": 2}, ['line 3: key "a" already set in map']),
        ("m:\n  x: 1\n  x: 2\n", {"m": {"x": 2}}, ['line 3: key "x" already set in map']),
    ],
)
def test_a_key_that_stands_twice_is_reported_with_its_line(
    text: str, expected: Any, found: list[str]
) -> None:
    """The last value counts."""
    assert load(text.encode()) == (expected, found)


@pytest.mark.parametrize(
    "text",
    [
        b"a: [",
        b"a: b: c",
        b"{",
        b"\xff\xfe\xfa",
        b"a: \x00",
        b"*x",
        b"a: &a [*a]",
        b"!!python/object/apply:os.system [x]",
        b"!!python/name:os.system x",
        b"? [1]\n: 2",
        b"? ~\n: 2",
        b"a: .inf",
        b"a: .nan",
        b"a: 1e999",
        b"a: !!binary aGk=",
        b"<<: 1",
        b"a: &x '<<'\n*x : 1\n*y : 2",
    ],
)
def test_what_has_no_json_form_is_refused(text: bytes) -> None:
    """Nothing but JSON values comes out, and no other exception."""
    with pytest.raises(YamlError, match=r"^yaml: "):
        load(text)


def test_a_syntax_error_names_its_line() -> None:
    """In the words of the parser, which is the reference's too."""
    with pytest.raises(YamlError, match=r"^yaml: line 2: did not find expected"):
        load(b"a: 1\nb: [")


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 1_000_000,
        b"- " * 1_000_000,
        b"{a: " * 700_000,
        b'{"a":' * 500_000,
        b"[" + b"a," * 1_000_000,
        b"a: &a [x,x,x,x,x,x,x,x,x]\n"
        + b"".join(
            b"%c: &%c [%s]\n" % (name, name, b",".join([b"*%c" % (name - 1)] * 9))
            for name in range(ord("b"), ord("k"))
        ),
        b"a0: &a0 [x]\n" + b"".join(b"a%d: &a%d [*a%d]\n" % (n, n, n - 1) for n in range(1, 500)),
        b"x" * (3 * 1024 * 1024 + 1),
    ],
    ids=["brackets", "dashes", "maps", "json", "wide", "laughs", "alias-depth", "size"],
)
def test_bombs_are_refused(body: bytes) -> None:
    """By depth, by nodes, by what aliases unfold to, by size."""
    with pytest.raises(YamlError):
        load(body)


def test_a_document_is_written_as_the_reference_writes_it() -> None:
    """Keys in order, lists at the indent of their key, double quotes where text could mislead."""
    value = {
        "metadata": {
            "name": "a",
            "creationTimestamp": "2026-01-02T03:04:05Z",
            "labels": {"b": "1"},
        },
        "items": [{"x": "true"}, {"y": None}],
        "empty": {},
        "none": [],
        "text": "line\nline\n",
        "umlaut": "ü",
        "off": False,
    }

    assert dump(value).decode() == (
        "empty: {}\n"
        "items:\n"
        '- x: "true"\n'
        '- "y": null\n'
        "metadata:\n"
        '  creationTimestamp: "2026-01-02T03:04:05Z"\n'
        "  labels:\n"
        '    b: "1"\n'
        "  name: a\n"
        "none: []\n"
        '"off": false\n'
        "text: |\n  line\n  line\n"
        "umlaut: ü\n"
    )


texts = st.text(max_size=8) | st.sampled_from(
    ["yes", "1", "0x1", "~", "1:30", "2026-01-01", "<<", "- a"]
)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


@given(values)
def test_what_is_written_reads_back(value: Any) -> None:
    """Whatever JSON can say."""
    assert load(dump(value)) == (value, [])


TEXTS = st.sampled_from(["a", "yes", "x\n\n\n", "\n", "  lead\n", "- a", "", "a: b", "x " * 60])
ITEMS = st.lists(TEXTS | st.dictionaries(TEXTS, TEXTS, max_size=3), max_size=4)


@given(st.dictionaries(st.sampled_from(["apiVersion", "kind", "zero"]), TEXTS), ITEMS)
def test_lists_of_objects_read_as_they_were(rest: dict[str, str], items: list[Any]) -> None:
    """They are written item by item, so that others get their turn; one document comes of it."""
    value = {**rest, "items": items}

    assert load(dump(value)) == (value, [])


@given(st.binary(max_size=40) | st.text("ab:-[]{}&*!|>'\"#?,\n 1", max_size=40).map(str.encode))
def test_no_input_raises_anything_else(body: bytes) -> None:
    """Bad input is an error with a name."""
    with contextlib.suppress(YamlError):
        load(body)


def test_a_whole_number_is_an_integer_however_it_is_written() -> None:
    """YAML has one type of number, like JSON; only the text distinguishes 1.0 from 1."""
    value, _ = load(b"a: 1.0\nb: 1e2\nc: 1.5\n")

    assert [(number, type(number)) for number in value.values()] == [
        (1, int),
        (100, int),
        (1.5, float),
    ]


def test_long_text_is_folded() -> None:
    """Lines stay as short as other writers keep them, and mean the same."""
    text = "word " * 40
    written = dump({"a": text})

    assert max(map(len, written.splitlines())) <= 90
    assert load(written)[0] == {"a": text}


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("", []),
        ("# nothing\n---\n---\n", []),
        ("a: 1", [{"a": 1}]),
        ("--- {a: 1}\n--- \nb: 2\n---\n# end", [{"a": 1}, {"b": 2}]),
        ("a: |\n  ---\n---\r\nb: 2\r\n", [{"a": "---\n"}, {"b": 2}]),
        ("a: ---b\n---c: 1\n", [{"a": "---b", "---c": 1}]),
        ('{"a": 1}\n---\n{"b": 2}', [{"a": 1}, {"b": 2}]),
    ],
)
def test_every_document_of_a_file_is_read(text: str, values: list[Any]) -> None:
    """Empty ones do not count; three dashes inside of a value separate nothing."""
    assert [value for value, _ in load_all(text.encode())] == values


def test_a_file_with_one_document_has_no_others() -> None:
    """A second one would be ignored silently; so many cannot be meant."""
    assert load_only(b"---\na: 1\n---\n# end\n") == ({"a": 1}, [])
    assert load_only(b"") == (None, [])
    with pytest.raises(YamlError, match="2 documents, where one is read"):
        load_only(b"a: 1\n---\nb: 2\n")
    with pytest.raises(YamlError, match=f"more than {MOST_DOCUMENTS} documents"):
        load_all(b"---\n" * MOST_DOCUMENTS)
