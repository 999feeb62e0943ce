"""PEM: the reference's reading of odd texts, and linear work for hostile ones."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchid.kernel.credentials.refusals import TooMuchPem
from orchid.kernel.credentials.x509 import pem

BODY = base64.b64encode(b"hello world").decode()
GOOD = f"-----BEGIN A-----\n{BODY}\n-----END A-----\n"


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        GOOD.rstrip("\n"),
        GOOD.replace("\n", "\r\n"),
        "text before\n" + GOOD + "text after",
        GOOD.replace(BODY, f"  {BODY[:4]} \n\n\t{BODY[4:]}"),
        GOOD.replace("-----\n", "-----  \t\n"),
        "-----BEGIN A-----\nnot base64!\n-----END A-----\n" + GOOD,
        "-----BEGIN B-----\n" + GOOD,
        "-----BEGIN A-----\nAAAA\n-----END B-----\n" + GOOD,
        "-----END A-----\n" + GOOD,
        "-----BEGIN A----\n" + GOOD,
        " -----BEGIN A-----\nAAAA\n-----END A-----\n" + GOOD,
        "-----BEGIN A-----\nAAA\n-----END A-----\n" + GOOD,
        "-----BEGIN A-----\nAA==AAAA\n-----END A-----\n" + GOOD,
        "-----BEGIN A-----\nAAAA\n-----END A----- x\n" + GOOD,
    ],
)
def test_the_good_block_is_found_whatever_stands_around_it(text: str) -> None:
    """Blocks that break a rule are skipped; blanks and line ends do not matter."""
    (block,) = pem.split(text)

    assert block.label == "A"
    assert block.data == b"hello world"
    assert block.headers == ()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "text",
        BODY,
        " " + GOOD,
        GOOD.replace("END A", "END B"),
        GOOD.replace("BEGIN A-----", "BEGIN A----- x"),
        GOOD.replace("-----END A-----", ""),
        GOOD.replace("\n", ""),
        GOOD.replace("BEGIN A", "begin A"),
        GOOD.replace("END A", "END a"),
    ],
)
def test_texts_without_a_whole_block_have_none(text: str) -> None:
    """Half a block is no block."""
    assert pem.split(text) == ()
    assert pem.first(text) is None


def test_headers_are_reported() -> None:
    """Lines with a colon directly after BEGIN are headers, trimmed."""
    text = f"-----BEGIN A-----\nProc-Type: 4,ENCRYPTED\nX:y\n\n{BODY}\n-----END A-----\n"

    (block,) = pem.split(text)

    assert block.headers == (("Proc-Type", "4,ENCRYPTED"), ("X", "y"))
    assert block.data == b"hello world"


def test_an_empty_block_counts() -> None:
    """A block may hold nothing, and may have an empty or odd label."""
    text = "-----BEGIN A-----\n-----END A-----\n-----BEGIN -----\n\n-----END -----\n"

    blocks = pem.split(text)

    assert [(block.label, block.data) for block in blocks] == [("A", b""), ("", b"")]


def test_size_and_number_of_blocks_are_bounded() -> None:
    """Too large and too many are refusals; what only begins like a block counts too."""
    broken = "-----BEGIN A-----\n=\n-----END A-----\n"
    begun = "-----BEGIN \n"

    for text in (
        "x" * (pem.MAX_BYTES + 1),
        "é" * (pem.MAX_BYTES - 1),
        broken * 5000,
        begun * 5000,
    ):
        with pytest.raises(TooMuchPem):
            pem.split(text)


def test_what_follows_the_first_block_does_not_count_for_it() -> None:
    """Reading one block returns it, however many follow."""
    block = pem.first(GOOD + "-----BEGIN A-----\n" * 5000)

    assert block is not None
    assert block.data == b"hello world"


BEGIN, END = b"-----BEGIN A-----\n", b"-----END A-----\n"
HOSTILE = {
    "begins": BEGIN,
    "ends": END,
    "pairs": BEGIN + END,
    "mismatched": BEGIN + b"-----END B-----\n",
    "headers": b"a:\n",
    "dashes": b"-",
    "newlines": b"\n",
    "blanks": b" ",
    "almost": BEGIN + b"AAAA!\n" + END,
    "unclosed": b"-----BEGIN A",
    "dash-groups": b"-----BEGIN ----- x",
    "dash-labels": b"-----BEGIN " + b"-" * 240 + b"\n",
    "colons": b"a:\n" * 60 + BEGIN,
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize(
    "tail", [b"", END, b"-----END B-----\n", b"-----END A-----" + b" " * 9999 + b"x"]
)
def test_a_megabyte_of_almost_pem_is_read_or_refused(name: str, tail: bytes) -> None:
    """No repetition makes the reading quadratic: a regression here would take minutes."""
    piece = HOSTILE[name]
    data = (BEGIN + piece * (pem.MAX_BYTES // len(piece)))[: pem.MAX_BYTES - len(tail)] + tail

    try:
        blocks = pem.split(data)
    except TooMuchPem:
        return

    assert len(blocks) <= 1


@given(
    st.lists(st.tuples(st.sampled_from(["A", "B C", "X1"]), st.binary(max_size=300)), max_size=5)
)
def test_what_is_encoded_splits_into_the_same_blocks(blocks: list[tuple[str, bytes]]) -> None:
    """Splitting inverts encoding, for any number of blocks and any content."""
    text = b"".join(pem.encode(label, data) for label, data in blocks)

    assert [(block.label, block.data) for block in pem.split(text)] == blocks


FRAGMENTS = st.sampled_from(
    [
        "-----BEGIN A-----", "-----END A-----", "-----BEGIN B-----", "-----END B-----",
        "\n", "\r\n", " ", "AAAA", "AA==", "=", "-", "-----", "a: b", "BEGIN", "x!", "\u00e9",
    ]
)  # fmt: skip


@given(st.lists(FRAGMENTS, max_size=40).map("".join))
def test_any_text_is_split_and_its_first_block_is_the_first(text: str) -> None:
    """For any text, the fast path and the full parser agree."""
    blocks = pem.split(text)

    assert pem.first(text) == next(iter(blocks), None)


USUAL = pem.encode("A B", bytes(range(60)))


@pytest.mark.parametrize(
    "text",
    [
        USUAL,
        USUAL.rstrip(b"\n"),
        USUAL + b"\n",
        USUAL + USUAL,
        USUAL.replace(b"END A B", b"END A"),
        USUAL.replace(b"\n-----END", b"-----END"),
        USUAL.replace(b"\n-----END", b"\n\n-----END"),
        USUAL.replace(b"\n-----END", b"=\n-----END"),
        USUAL.replace(b"AAEC", b"AA=="),
        USUAL.replace(b"AAEC", b"AA:C"),
        USUAL.replace(b"A B-", b"A B -"),
    ],
)
def test_a_text_that_is_one_block_is_read_as_any_other(text: bytes) -> None:
    """The short way to the only block finds what the long way finds, or nothing as that does."""
    assert pem.first(text) == next(iter(pem.split(text)), None)


def test_the_bytes_of_a_block_are_not_shown() -> None:
    """They may be a private key, and what is printed ends in a log."""
    (block,) = pem.split(GOOD)

    assert "hello" not in repr(block)
    assert "hello" not in f"{[block]}"
