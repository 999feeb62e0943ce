"""Trust bundles: only authorities, each once, nothing hidden in headers, at most a megabyte."""

import pytest

from orchid.kernel.credentials.authorities.authority import Authority
from orchid.kernel.credentials.x509 import pem
from orchid.kernel.credentials.x509.trust import trust_anchors
from tests.unit.kernel.credentials.samples import DAY, NOW

ONE = Authority.create("one", now=NOW)
TWO = Authority.create("two", now=NOW)
A = ONE.certificate_pem.decode()
B = TWO.certificate_pem.decode()
LEAF = ONE.issue_client("leaf", lifetime=DAY, now=NOW).chain.decode()
OTHER = pem.encode("PUBLIC KEY", b"x").decode()
HEADERS = A.replace("CERTIFICATE-----\n", "CERTIFICATE-----\nName: x\n\n", 1)
BROKEN = pem.encode("CERTIFICATE", b"\x30\x03\x02\x01\x05").decode()
BLOCK = pem.first(A)
assert BLOCK is not None
JOINED = pem.encode("CERTIFICATE", BLOCK.data + BLOCK.data).decode()
NONE = "at least one trust anchor must be provided"


@pytest.mark.parametrize("text", [A, A + B, f"text\n{A}between\n{B}after", A.replace("\n", "\r\n")])
def test_bundles_of_authorities_are_good(text: str) -> None:
    """One or several anchors, with any text around them."""
    assert trust_anchors.problems(text) == []


@pytest.mark.parametrize(
    ("text", "details"),
    [
        ("", [NONE]),
        ("text", [NONE]),
        (A[:-10], [NONE]),
        (OTHER, ["entry 0 has bad block type: PUBLIC KEY"]),
        (HEADERS, ["entry 0 has PEM block headers"]),
        (BROKEN, ["entry 0 does not parse as X.509"]),
        (JOINED, ["entry 0 does not parse as X.509"]),
        (LEAF, ["entry 0 does not have the CA bit set"]),
        (
            A + A + OTHER + LEAF + BROKEN,
            [
                "entry 2 has bad block type: PUBLIC KEY",
                "entry 3 does not have the CA bit set",
                "entry 4 does not parse as X.509",
            ],
        ),
        (A + A, ["duplicate trust anchor (indices [0 1])"]),
        (
            A + B + B + A + B,
            ["duplicate trust anchor (indices [0 3])", "duplicate trust anchor (indices [1 2 4])"],
        ),
    ],
)
def test_every_problem_is_listed_in_the_reference_words(text: str, details: list[str]) -> None:
    """One text per bad block; duplicates only when nothing else is wrong."""
    assert [problem.detail for problem in trust_anchors.problems(text)] == details


@pytest.mark.parametrize("text", ["x" * (trust_anchors.MAX_BUNDLE + 1), "é" * (1 << 19) + "xx"])
def test_too_long_a_bundle_is_not_looked_at(text: str) -> None:
    """The limit counts bytes, and is the only thing reported."""
    (problem,) = trust_anchors.problems(text)

    assert problem.too_long
    assert problem.detail == "may not be more than 1048576 bytes"


def test_too_many_blocks_are_one_problem() -> None:
    """A bundle of thousands of empty blocks is refused as a whole."""
    (problem,) = trust_anchors.problems("-----BEGIN A-----\n-----END A-----\n" * 5000)

    assert problem.detail == "more than 4096 PEM blocks"


def test_anchors_are_given_once_each() -> None:
    """Publishers and consumers see the union, in order."""
    assert trust_anchors.anchors(A + B + A) == [
        block.data for text in (A, B) if (block := pem.first(text)) is not None
    ]
