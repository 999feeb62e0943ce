"""Names of signers: what is refused, in which words, and in which order."""

import pytest

from orchid.kernel.wire.fields import Path
from orchid.kernel.wire.rules.signer_names import signer_name_errors

PATH = Path() / "spec" / "signerName"
LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and "
    "must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used "
    "for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used "
    "for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
QUALIFIED = "must be a fully qualified domain and path of the form 'example.com/signer-name'"
SEGMENTS = "should be a domain with at least two segments separated by dots"


def problems(name: str) -> list[str]:
    return [error.problem for error in signer_name_errors(PATH, name)]


@pytest.mark.parametrize(
    "name",
    ["example.com/a", "a.b/c", "orch.io/not-a-known-one", "example.com/a.b.c", "1.2/3"],
)
def test_good_names_pass(name: str) -> None:
    """Any name of the right form is a valid signer name."""
    assert problems(name) == []


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("", ["Required value"]),
        ("signer", [f'Invalid value: "signer": {QUALIFIED}']),
        ("example.com/a/b", [f'Invalid value: "example.com/a/b": {QUALIFIED}']),
        ("localhost/a", [f'Invalid value: "localhost": {SEGMENTS}']),
        ("Example.com/a", [f'Invalid value: "Example.com": validating label "Example": {LABEL}']),
        ("example.com/", [f'Invalid value: "": validating label "": {SUBDOMAIN}']),
        ("example.com/a_b", [f'Invalid value: "a_b": validating label "a_b": {SUBDOMAIN}']),
        (
            f"{'a' * 64}.com/a",
            [
                f'Invalid value: "{"a" * 64}.com": validating label "{"a" * 64}": '
                "must be no more than 63 characters"
            ],
        ),
        (
            "/",
            [
                f'Invalid value: "": validating label "": {LABEL}',
                f'Invalid value: "": {SEGMENTS}',
                f'Invalid value: "": validating label "": {SUBDOMAIN}',
            ],
        ),
    ],
)
def test_bad_names_are_refused_in_known_words(name: str, expected: list[str]) -> None:
    """Every finding comes in the order that clients know."""
    assert problems(name) == expected


def test_only_the_first_bad_label_is_reported() -> None:
    """One bad label is reason enough, with all that is wrong with it."""
    found = problems("_.-.com/a")

    assert found == [f'Invalid value: "_.-.com": validating label "_": {LABEL}']


def test_lengths_are_judged_after_the_form() -> None:
    """Domain and whole name have limits of their own."""
    domain = ".".join(["a" * 60] * 5)

    assert problems(f"{domain}/a") == ["Too long: may not be more than 253 bytes"]
    assert problems(f"example.com/{'a' * 560}")[1] == "Too long: may not be more than 571 bytes"


def test_giant_names_are_not_repeated() -> None:
    """An answer never grows to many times what was sent."""
    assert problems("x" * 1_000_000) == ["Too long: may not be more than 571 bytes"]
