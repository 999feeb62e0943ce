"""Label and field selectors: what they select, and what is no selector."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchid.kernel.wire.errors import BadRequest
from orchid.kernel.wire.selectors.selection import FieldMatcher, FieldTerm, LabelMatcher

LABELS = {"env": "prod", "tier": "7", "empty": "", "word": "x"}
REQUIREMENT = "unable to parse requirement: "
VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
    "and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or "
    "'12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "  ",
        "env",
        "env=prod",
        "env == prod",
        "env!=stage",
        "none!=x",
        "env in (stage, prod)",
        "env in(prod)",
        "none notin (prod)",
        "!none",
        "! none , env",
        "tier>6",
        "tier<8,tier>0",
        "empty=",
        "empty in ()",
        "empty in (,a)",
        "empty in (a,)",
        "empty in (a,,b)",
        "env notin (),env",
        "env=prod,\ttier = 7\n",
        "in!=in,notin notin (in)",
    ],
)
def test_a_selector_that_fits_matches(text: str) -> None:
    """All forms, with blanks anywhere, select the object."""
    assert LabelMatcher.parse(text).matches(LABELS)


@pytest.mark.parametrize(
    "text",
    [
        "none",
        "!env",
        "env=stage",
        "env!=prod",
        "none=",
        "tier>7",
        "tier<7",
        "word>1",
        "none<9",
        "env in (a,b)",
        "env notin (prod)",
        "env,none",
        "in=x",
    ],
)
def test_a_selector_that_does_not_fit_does_not_match(text: str) -> None:
    """Missing and non-numeric values never compare."""
    assert not LabelMatcher.parse(text).matches(LABELS)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (",", "found ',', expected: !, identifier, or 'end of string'"),
        ("a,", "found '', expected: identifier after ','"),
        ("a,,b", "found ',', expected: identifier after ','"),
        ("!a=b", "found '=', expected: ',' or 'end of string'"),
        ("a=b c", "found 'c', expected: ',' or 'end of string'"),
        ("!!", REQUIREMENT + "found '!', expected: identifier"),
        ("!", REQUIREMENT + "found '', expected: identifier"),
        ("env=(prod", REQUIREMENT + "found '(', expected: identifier"),
        ("a b=c", REQUIREMENT + "found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("a in b", REQUIREMENT + "found 'b' expected: '('"),
        ("a in", REQUIREMENT + "found '' expected: '('"),
        ("a in (", REQUIREMENT + "found '', expected: ',', ')' or identifier"),
        ("a in (b c)", REQUIREMENT + "found 'c', expected: ',' or ')'"),
        ("a in (b", REQUIREMENT + "found '', expected: ',' or ')'"),
        ("a in (b,", REQUIREMENT + "found '', expected: ',', or identifier"),
        ("a in (b,,)", REQUIREMENT + "found ')', expected: ',', or identifier"),
        ("env=*", REQUIREMENT + f'values[0][env]: Invalid value: "*": {VALUE}'),
        (
            "a in (*,b,?)",
            f'{REQUIREMENT}[values[0][a]: Invalid value: "*": {VALUE}, '
            f'values[1][a]: Invalid value: "?": {VALUE}]',
        ),
        (
            "tier>x",
            REQUIREMENT + 'values[0]: Invalid value: "x": '
            "for 'Gt', 'Lt' operators, the value must be an integer",
        ),
    ],
)
def test_what_is_no_label_selector_is_refused_in_known_words(text: str, message: str) -> None:
    """Each place in the grammar has its text."""
    with pytest.raises(BadRequest) as caught:
        LabelMatcher.parse(text)

    assert caught.value.message == message


def test_a_bad_key_is_reported_without_a_path() -> None:
    """There is no field to name, and the reference says so."""
    with pytest.raises(BadRequest) as caught:
        LabelMatcher.parse("a@=b")

    start = REQUIREMENT + '<nil>: Invalid value: "a@": name part must consist of'
    assert caught.value.message.startswith(start)


LABEL_NAMES = st.sampled_from(["a", "b.c/d", "in", "notin", "x-1"])
LABEL_VALUES = st.sampled_from(["", "a", "in", "notin", "v_1", "42"])
REQUIREMENTS = st.one_of(
    LABEL_NAMES,
    LABEL_NAMES.map("!{}".format),
    st.builds("{}{}{}".format, LABEL_NAMES, st.sampled_from(["=", "==", "!="]), LABEL_VALUES),
    st.builds("{}{}{}".format, LABEL_NAMES, st.sampled_from("<>"), st.integers(0, 99)),
    st.builds(
        lambda key, operator, values: f"{key} {operator} ({','.join(values)})",
        LABEL_NAMES,
        st.sampled_from(["in", "notin"]),
        st.lists(LABEL_VALUES, max_size=3).filter(lambda values: values[-2:] != ["", ""]),
    ),
)


@given(st.lists(REQUIREMENTS))
def test_a_label_selector_survives_printing(requirements: list[str]) -> None:
    """A printed selector is parsed to the same selector."""
    try:
        selector = LabelMatcher.parse(",".join(requirements))
    except BadRequest:
        return  # two empty values in a row, which the grammar refuses in places

    assert LabelMatcher.parse(str(selector)) == selector


@given(st.text(alphabet="ab=!(),<> in\0\t\\é.", max_size=20))
def test_any_text_is_a_selector_or_a_bad_request(text: str) -> None:
    """Nothing else comes out, and reading ends."""
    for kind in (LabelMatcher, FieldMatcher):
        try:
            selector = kind.parse(text)
        except BadRequest:
            continue
        assert kind.parse(str(selector)) == selector


def test_a_field_selector_has_terms() -> None:
    """Both spellings of equality are one; empty terms are skipped."""
    selector = FieldMatcher.parse("metadata.name==a,,spec.signerName!=b")

    assert selector.terms == (
        FieldTerm("metadata.name", "=", "a"),
        FieldTerm("spec.signerName", "!=", "b"),
    )
    assert selector.fields() == ("metadata.name", "spec.signerName")
    assert selector.exact("metadata.name") == "a"
    assert selector.exact("spec.signerName") is None
    assert FieldMatcher.parse("").empty


def test_a_field_selector_matches_by_lookup() -> None:
    """A missing value is the empty text."""
    values = {"a": "1"}

    def lookup(field: str) -> str:
        return values.get(field, "")

    assert FieldMatcher.parse("a=1,b=").matches(lookup)
    assert FieldMatcher.parse("b!=1").matches(lookup)
    assert not FieldMatcher.parse("a!=1").matches(lookup)
    assert not FieldMatcher.parse("a=1,b=2").matches(lookup)


def test_values_are_escaped_with_backslashes() -> None:
    """A backslash keeps commas, equal signs and itself."""
    selector = FieldMatcher.parse(r"a=x\,y\=z\\")

    assert selector.exact("a") == r"x,y=z" + "\\"
    assert FieldMatcher.parse(str(selector)) == selector


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("metadata.name", "invalid selector: 'metadata.name'; can't understand 'metadata.name'"),
        ("b=1,a", "invalid selector: 'b=1,a'; can't understand 'a'"),
        (r"a=\x", r"invalid field selector: invalid escape sequence: \x"),
        ("a=\\", "invalid field selector: invalid escape sequence: \\"),
        ("a=b=c", "invalid field selector: unescaped character in value: 61"),
    ],
)
def test_what_is_no_field_selector_is_refused_in_known_words(text: str, message: str) -> None:
    """The first term that is wrong, in sorted order, is named."""
    with pytest.raises(BadRequest) as caught:
        FieldMatcher.parse(text)

    assert caught.value.message == message


def test_hostile_length_is_no_burden() -> None:
    """Long selectors are parsed in one pass; those that are too long, or invalid, are refused."""
    assert len(LabelMatcher.parse(",".join(["a=b"] * 100)).requirements) == 100
    assert len(FieldMatcher.parse("a=b," * 100).terms) == 100
    assert len(LabelMatcher.parse(f"a in ({'b,' * 8_000}c)").requirements[0].values) == 2
    for text in ("a=b," * 100 + "c=d", "a=b," * 20_000, "!" * 200_000, "!" * 10_000, "\\" * 10_001):
        with pytest.raises(BadRequest):
            LabelMatcher.parse(text)
        with pytest.raises(BadRequest):
            FieldMatcher.parse(text if text[0] != "!" else f"{text}a")
