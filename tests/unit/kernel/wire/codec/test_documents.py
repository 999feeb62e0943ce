"""Bytes to objects and back: what is written, what is read, what is reported and refused."""

import datetime
import json
from typing import Annotated, Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import field

from orchid.kernel.wire.codec.documents import (
    Decoder,
    Malformed,
    Undecodable,
    body_summary,
    convert,
    encode,
    pretty,
    strict_error,
    to_builtins,
    type_meta,
)
from orchid.kernel.wire.meta import Object, ObjectMeta, Time
from orchid.kernel.wire.struct import Wire, merge_key, proto, shaped_like

NOW = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)


class Part(Wire):
    name: str = ""
    weight: float = 0.0


class Container(Wire):
    image: str = ""
    data: bytes = b""
    at: Time | None = None


class Pod(Wire):
    node: str = ""
    count: int = 0
    containers: tuple[Container, ...] = ()


class Thing(Object):
    parts: Annotated[tuple[Part, ...], merge_key("name")] = ()
    enabled: bool | None = None
    size: Annotated[int, msgspec.Meta(le=2**31 - 1)] | None = None
    data: bytes | None = None
    at: Time | None = None
    beat: Annotated[Time | None, proto(9, "micro-time")] = None
    words: tuple[str, ...] = ()
    numbers: dict[str, int] = field(default_factory=dict)
    anything: dict[str, Any] = field(default_factory=dict)
    pod: Annotated[dict[str, Any], shaped_like(Pod)] = field(default_factory=dict)


DECODER = Decoder(Thing)


def read(text: str | bytes) -> tuple[Thing, list[str]]:
    return DECODER.decode(text if isinstance(text, bytes) else text.encode(), findings=True)


def refusal(text: str | bytes) -> str:
    with pytest.raises(Undecodable) as caught:
        read(text)
    return str(caught.value)


# --- writing --------------------------------------------------------------------------------------


def test_objects_are_written_compactly_and_in_order() -> None:
    """Fields keep their order, map keys are sorted, empty fields and the newline are left out."""
    thing = Thing(
        kind="Thing",
        api_version="v1",
        metadata=ObjectMeta(name="a", creation_timestamp=NOW, labels={"b": "2", "a": "1"}),
        enabled=False,
        data=b"hi",
    )

    assert encode(thing) == (
        b'{"kind":"Thing","apiVersion":"v1","metadata":{"name":"a",'
        b'"creationTimestamp":"2026-01-02T03:04:05Z","labels":{"a":"1","b":"2"}},'
        b'"enabled":false,"data":"aGk="}'
    )


def test_what_a_browser_might_execute_is_escaped() -> None:
    """Angle brackets, ampersands and the two line separators become escapes, the rest is raw."""
    data = encode({"<a>": "&\u2028\u2029\u201cé"})

    assert data == '{"\\u003ca\\u003e":"\\u0026\\u2028\\u2029\u201cé"}'.encode()


@given(st.recursive(st.none() | st.booleans() | st.text(), st.lists))
def test_escaping_changes_no_value(value: Any) -> None:
    """Encoded values decode to the same values."""
    assert json.loads(encode(value)) == value


def test_pretty_printing_keeps_order_and_empty_brackets() -> None:
    """Two blanks, keys as they came, empty objects and lists closed at once."""
    assert pretty(b'{"b":{},"a":[1,{"x":[]}]}') == (
        b'{\n  "b": {},\n  "a": [\n    1,\n    {\n      "x": []\n    }\n  ]\n}'
    )


def test_builtins_are_what_json_would_be() -> None:
    """Times and bytes are text, tuples are lists, empty fields are missing."""
    thing = Thing(words=("a",), at=NOW, data=b"hi")

    assert to_builtins(thing) == {
        "metadata": {},
        "words": ["a"],
        "at": "2026-01-02T03:04:05Z",
        "data": "aGk=",
    }
    assert convert(to_builtins(thing), Thing) == thing


# --- reading --------------------------------------------------------------------------------------


def test_a_clean_document_is_read_without_findings() -> None:
    """All types in one document."""
    thing, findings = read(
        '{"kind":"Thing","metadata":{"name":"a","labels":{"a":":x"}},"parts":[{"name":"p"}],'
        '"enabled":true,"data":"aGk=","at":"2026-01-02T03:04:05Z","words":["w"],"numbers":{"n":1},'
        '"anything":{"deep":[{"er":1.5}]},"pod":{"node":"n","other":{"x":null}}}'
    )

    assert findings == []
    assert thing == Thing(
        kind="Thing",
        metadata=ObjectMeta(name="a", labels={"a": ":x"}),
        parts=(Part("p"),),
        enabled=True,
        data=b"hi",
        at=NOW,
        words=("w",),
        numbers={"n": 1},
        anything={"deep": [{"er": 1.5}]},
        pod={"node": "n", "other": {"x": None}},
    )


def test_null_means_absent() -> None:
    """In fields it leaves the default; among values it is the empty value of the type."""
    assert read("null") == (Thing(), [])
    assert read('{"metadata":null,"parts":null,"enabled":null,"data":null,"kind":null}') == (
        Thing(),
        [],
    )
    thing, _ = read(
        '{"words":[null,"a"],"numbers":{"n":null},"parts":[null],"anything":{"a":null}}'
    )
    assert thing == Thing(words=("", "a"), numbers={"n": 0}, parts=(Part(),), anything={"a": None})


@pytest.mark.parametrize(
    ("text", "findings"),
    [
        ('{"colour":1}', ['unknown field "colour"']),
        (
            '{"metadata":{"shade":1,"name":"i"},"colour":{"a":{"b":1,"b":2}}}',
            ['unknown field "metadata.shade"', 'unknown field "colour"'],
        ),
        ('{"parts":[{},{"x":1}]}', ['unknown field "parts[1].x"']),
        ('{"Metadata":{}}', ['unknown field "Metadata"']),
        ('{"a\\"b":1}', ['unknown field "a\\"b"']),
        ('{"metadata":{},"metadata":{}}', ['duplicate field "metadata"']),
        ('{"metadata":{"labels":{"a":"b","a":"c"}}}', ['duplicate field "metadata.labels.a"']),
        ('{"x":1,"x":2}', ['unknown field "x"']),
        ('{"kind" : "a", "kind"\n:"b"}', ['duplicate field "kind"']),
        ('{"kind":"","kind":"","kind":""}', ['duplicate field "kind"']),
        ('{"anything":{"a":{"b":1,"b":2}}}', ['duplicate field "anything.a.b"']),
        ('{"kind":"a","kind":null,"z":0}', ['duplicate field "kind"', 'unknown field "z"']),
        ('{"kind":"{\\"a\\":1}","kind":"x"}', ['duplicate field "kind"']),
        ('{"metadata":{"labels":{"a\\\\":"1","a\\\\":"2"}}}', None),
        ('{"pod":{"unheard":1,"containers":[{"image":"i","unheard":1}]}}', None),
    ],
)
def test_unknown_and_repeated_fields_are_found_in_document_order(
    text: str, findings: list[str] | None
) -> None:
    """Every one is named by its path, once, and nothing below an unknown one."""
    if findings is None:
        expected = {
            True: ['duplicate field "metadata.labels.a\\\\"'],
            False: ['unknown field "pod.containers[0].unheard"'],
        }
        findings = expected["labels" in text]

    assert read(text)[1] == findings
    assert DECODER.decode(text.encode(), findings=False)[1] == []


def test_of_repeated_fields_the_last_counts() -> None:
    """Whether or not anyone asks for findings."""
    body = b'{"kind":"a","metadata":{"name":"x"},"kind":"b","metadata":{"name":"y"}}'

    for findings in (True, False):
        thing, _ = DECODER.decode(body, findings=findings)
        assert (thing.kind, thing.name) == ("b", "y")


@pytest.mark.parametrize(
    "text",
    [
        '{"metadata":{"annotations":{"last":"{\\"kind\\":\\"x\\"}","a":":","b":"c :d"}}}',
        '{"metadata":{"annotations":{"a":"\\\\\\": ","c":"\\"\\n:"}}}',
        '{ "metadata" :\t{"name"\n: "x"} }',
    ],
)
def test_colons_in_text_are_no_keys(text: str) -> None:
    """JSON inside annotations and odd spacing do not look like repeated fields."""
    assert read(text)[1] == []


def test_findings_have_an_end() -> None:
    """A hundred is enough, and long keys make it fewer."""
    many = "{" + ",".join(f'"x{number}":1' for number in range(500)) + "}"
    long = "{" + ",".join(f'"{"x" * 10_000}{number}":1' for number in range(50)) + "}"

    assert len(read(many)[1]) == 100
    assert len(read(long)[1]) == 7


PAIRS = st.lists(st.tuples(st.sampled_from(["a", "b\\", 'c"', ":", "d"]), st.text(max_size=4)))


@given(PAIRS, st.sampled_from(["", " ", "\n"]), st.booleans())
@example([(":", ""), ("a", '":')], "", True)
def test_no_repetition_is_missed(
    pairs: list[tuple[str, str]], blank: str, ascii_only: bool
) -> None:
    """The quick count never lets a repeated key through, nor sees one that is not there."""
    members = [
        f"{json.dumps(key)}{blank}:{json.dumps(value, ensure_ascii=ascii_only)}"
        for key, value in pairs
    ]
    body = '{"metadata":{"annotations":{' + ",".join(members) + "}}}"

    _, findings = DECODER.decode(body.encode("utf-8", "replace"), findings=True)

    keys = [key for key, _ in pairs]
    assert len(findings) == len({key for key in keys if keys.count(key) > 1})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"enabled":"yes"}', ".enabled: expected boolean, got string"),
        ('{"metadata":{"name":5}}', ".metadata.name: expected string, got number"),
        ('{"metadata":[]}', ".metadata: expected object, got array"),
        ('{"parts":{}}', ".parts: expected array, got object"),
        ('{"parts":[1]}', ".parts[0]: expected object, got number"),
        ('{"words":["a",{}]}', ".words[1]: expected string, got object"),
        ('{"numbers":{"n":true}}', ".numbers.n: expected integer, got boolean"),
        ('{"size":1.0}', ".size: expected integer, got number"),
        ('{"size":"1"}', ".size: expected integer, got string"),
        ('{"size":9223372036854775808}', ".size: integer out of range"),
        ('{"size":2147483648}', ".size: expected int <= 2147483647"),
        ('{"data":"%%%"}', "illegal base64 data at input byte 0"),
        ('{"data":7}', ".data: expected string, got number"),
        ('{"at":"yesterday"}', ".at: expected a time as in RFC 3339"),
        ('{"at":"2026-01-02T03:04:05"}', ".at: expected a time as in RFC 3339"),
        ('{"at":"2026-13-02T03:04:05Z"}', ".at: expected a time as in RFC 3339"),
        ('{"at":"0001-01-01T00:00:00+23:00"}', ".at: expected a time as in RFC 3339"),
        ('{"pod":{"node":1}}', ".pod.node: expected string, got number"),
        ('{"pod":{"containers":[{"data":"?"}]}}', "illegal base64 data at input byte 0"),
        ("[]", "the document: expected object, got array"),
        ('"x"', "the document: expected object, got string"),
    ],
)
def test_a_wrong_type_is_refused_by_its_path(text: str, message: str) -> None:
    """In our own words, and without the value."""
    assert refusal(text) == message


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "unexpected end of JSON input"),
        (b"  ", "unexpected end of JSON input"),
        (b"{", "unexpected end of JSON input"),
        (b'{"a', "unexpected end of JSON input"),
        (b'{"a":', "unexpected end of JSON input"),
        (b'{"a":1', "unexpected end of JSON input"),
        (b"tru", "unexpected end of JSON input"),
        (b"{not json", "invalid character 'n' looking for beginning of object key string"),
        (b'{"a":1,}', "invalid character '}' looking for beginning of object key string"),
        (b'{"a":?}', "invalid character '?' looking for beginning of value"),
        (b'{"a" 1}', "invalid character '1' after object key"),
        (b'{"a":1 2}', "invalid character '2' after object key:value pair"),
        (b'{"a":["]}",1 2]}', "invalid character '2' after array element"),
        (b'{"a":"\x01"}', "invalid character '\\x01' in string literal"),
        (b'{"a":"\\x"}', "invalid character 'x' in string escape code"),
        (b"{} x", "invalid character 'x' after top-level value"),
        (b"trap", "invalid character 'a' in literal true (expecting 'u')"),
        (b"NaN", "invalid character 'N' looking for beginning of value"),
        (b'{"a":"\xff"}', "invalid character encoding: the text is not UTF-8"),
        (b"[" * 20_000, "exceeded max depth"),
        (b'{"a":' * 20_000, "exceeded max depth"),
    ],
)
def test_invalid_json_is_reported_in_the_words_of_the_reference(body: bytes, message: str) -> None:
    """The first character that does not fit is named."""
    with pytest.raises(Malformed) as caught:
        read(body)

    assert str(caught.value) == message


@pytest.mark.parametrize(
    "body",
    [
        b'{"kind":"\\ud800"}',
        b'{"zz":"\\ud800"}',
        b'{"kind":"\xed\xa0\x80"}',
        b'{"anything":{"a":1e999}}',
        b'{"anything":{"a":' + b"9" * 5000 + b"}}",
        b'{"anything":{"a":' + b"[" * 300 + b"]" * 300 + b"}}",
        b'{"zz":' + b"[" * 2000 + b"]" * 2000 + b"}",
    ],
)
def test_what_could_not_be_written_again_is_refused(body: bytes) -> None:
    """Half characters, endless numbers and bottomless nesting stop at the door."""
    with pytest.raises(Undecodable):
        DECODER.decode(body, findings=True)
    with pytest.raises(Undecodable):
        DECODER.decode(body, findings=False)


def test_numbers_too_large_for_an_integer_become_floats_where_anything_goes() -> None:
    """As in the reference, which knows only 64 bits."""
    thing, _ = read('{"anything":{"a":9223372036854775808,"b":9223372036854775807}}')

    assert thing.anything == {"a": 9223372036854775808.0, "b": 9223372036854775807}


@pytest.mark.parametrize(
    "text", ["2026-01-02T05:04:05+02:00", "2026-01-02T03:04:05.999Z", "2026-01-02T03:04:05Z"]
)
def test_times_are_kept_in_utc_and_whole_seconds(text: str) -> None:
    """Whatever zone and fraction they came with."""
    assert read(f'{{"at":"{text}"}}')[0].at == NOW
    assert convert({"at": text}, Thing).at == NOW


def test_a_micro_time_keeps_its_fraction() -> None:
    """Leases are renewed more often than once a second."""
    assert read('{"beat":"2026-01-02T03:04:05.25Z"}')[0].beat == NOW.replace(microsecond=250_000)
    assert read('{"beat":"2026-01-02T04:04:05.1234567+01:00"}')[0].beat == NOW.replace(
        microsecond=123_456
    )


def test_plain_parts_keep_text_for_bytes_and_times() -> None:
    """An open record is stored as it came, once it has been checked."""
    thing, _ = read('{"pod":{"containers":[{"data":"aGk=","at":"2026-01-02T05:04:05+02:00"}]}}')

    assert thing.pod == {"containers": [{"data": "aGk=", "at": "2026-01-02T03:04:05Z"}]}


def test_plain_parts_keep_the_four_digits_of_a_year() -> None:
    """A time that was changed to UTC can still be read by others."""
    thing, _ = read('{"pod":{"containers":[{"at":"0451-01-02T05:04:05+02:00"}]}}')

    assert thing.pod == {"containers": [{"at": "0451-01-02T03:04:05Z"}]}


@pytest.mark.parametrize(
    ("text", "position"),
    [("%%%", 0), ("aGk", 0), ("aaaaaG", 4), ("aG=x", 2), ("a===", 1), ("aGk=x", 4), ("aG=", 3)],
)
def test_bad_base64_is_reported_with_its_position(text: str, position: int) -> None:
    """The first byte that does not fit, or the start of a short group."""
    assert refusal(json.dumps({"data": text})) == f"illegal base64 data at input byte {position}"


def test_base64_may_be_wrapped() -> None:
    """Line breaks are no fault."""
    assert read('{"data":"a\\nGk\\r\\n="}')[0].data == b"hi"


@given(
    st.binary(max_size=40) | st.text(alphabet='{}[]":,\\ aku01.-e\n', max_size=40).map(str.encode)
)
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    """Nothing but an object or Undecodable comes out, and what is read can be written."""
    try:
        thing, _ = read(body)
    except Undecodable:
        return

    assert DECODER.stored(encode(thing)) == thing


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["kind", "metadata", "name", "labels", "parts", "anything", "pod", "at"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(JSON_VALUES)
def test_bytes_and_builtins_are_read_alike(value: Any) -> None:
    """Converting a document gives what decoding its text gives."""
    body = json.dumps(value).encode()
    try:
        expected: Any = DECODER.decode(body, findings=True)
    except Undecodable as fault:
        expected = type(fault)
    try:
        got: Any = DECODER.convert(value, findings=True)
    except Undecodable as fault:
        got = type(fault)

    assert got == expected


def test_a_document_says_what_it_is() -> None:
    """Kind and version are read whatever else there is."""
    meta = type_meta(b'{"kind":"Secret","apiVersion":"v1","secrets":7}')

    assert (meta.kind, meta.api_version) == ("Secret", "v1")


def test_bodies_are_summed_up_for_the_error_text() -> None:
    """Objects by their beginning, anything else in hexadecimal digits."""
    assert body_summary(b"") == "<empty>"
    assert body_summary(b"{not json") == "{not json"
    assert body_summary(b"{" + b"a" * 30) == "{" + "a" * 29 + " ..."
    assert body_summary(b"[]") == "5b5d"
    assert body_summary(b"x" * 31) == "78" * 30 + " ..."


def test_strict_findings_become_one_sentence() -> None:
    """Errors with lines of a YAML body come before the others."""
    assert strict_error(['unknown field "a"', 'duplicate field "b"']) == (
        'strict decoding error: unknown field "a", duplicate field "b"'
    )
    assert strict_error(['line 6: key "a" already set in map', 'unknown field "b"']) == (
        'strict decoding error: yaml: unmarshal errors:\n  line 6: key "a" already set in map, '
        'unknown field "b"'
    )


# --- YAML -----------------------------------------------------------------------------------------


def test_yaml_is_read_by_the_same_rules() -> None:
    """Errors are sorted by key, after those about repeated keys, which have a line number."""
    body = (
        b"kind: Thing\nzz: 1\nmetadata:\n  name: a\n"
        b"  labels:\n    x: b\n    x: c\nenabled: true\naa:\n"
    )

    thing, findings = DECODER.decode(body, yaml=True, findings=True)

    assert (thing.kind, thing.name, thing.enabled) == ("Thing", "a", True)
    assert findings == [
        'line 7: key "x" already set in map',
        'unknown field "aa"',
        'unknown field "zz"',
    ]
    assert DECODER.decode(body, yaml=True, findings=False)[1] == []


def test_bad_yaml_is_refused() -> None:
    """Invalid YAML and YAML of a wrong type are both reported."""
    with pytest.raises(Malformed):
        DECODER.decode(b"a: [", yaml=True)
    with pytest.raises(Undecodable, match=r"^\.enabled: expected boolean, got string$"):
        DECODER.decode(b"enabled: maybe", yaml=True)
    assert DECODER.decode(b"", yaml=True) == (Thing(), [])
    assert type_meta(b"kind: Secret", yaml=True).kind == "Secret"
