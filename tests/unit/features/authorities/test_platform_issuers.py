"""The certificates of the platform signers' authorities, as their files change."""

from pathlib import Path

from orchid.features.authorities.platform_issuers import PlatformIssuers
from orchid.kernel.credentials.authorities.authority import Authority
from tests.unit.kernel.credentials.samples import NOW

ONE, OTHER = "example.com/one", "example.com/other"


def test_a_signer_without_a_file_has_no_issuer(tmp_path: Path) -> None:
    """Certificates that others sign for it are not ours."""
    issuers = PlatformIssuers({ONE: tmp_path / "ca.crt"})

    assert list(issuers.of(OTHER)) == []


def test_a_file_that_appears_later_counts_from_then_on(tmp_path: Path) -> None:
    """A server may start before its authority is there."""
    file = tmp_path / "ca.crt"
    issuers = PlatformIssuers({ONE: file})
    before = list(issuers.of(ONE))
    made = Authority.create("ca", now=NOW)
    file.write_bytes(made.chain_pem)

    assert before == []
    assert list(issuers.of(ONE)) == [made.certificate]


def test_an_authority_that_was_replaced_still_counts(tmp_path: Path) -> None:
    """The controller may have signed with it a moment ago; the newest comes first."""
    first, second = (Authority.create(name, now=NOW) for name in ("first", "second-one"))
    file = tmp_path / "ca.crt"
    file.write_bytes(first.chain_pem)
    issuers = PlatformIssuers({ONE: file, OTHER: file})
    assert list(issuers.of(ONE)) == [first.certificate]

    file.write_bytes(second.chain_pem)
    both = list(issuers.of(OTHER))
    file.write_bytes(b"no certificate")

    assert both == [second.certificate, first.certificate]
    assert list(issuers.of(ONE)) == both


def test_only_the_issuing_certificate_of_a_chain_counts(tmp_path: Path) -> None:
    """Certificates that its root signs are not issued by the signer."""
    lower, upper = (Authority.create(name, now=NOW) for name in ("lower", "upper"))
    file = tmp_path / "ca.crt"
    file.write_bytes(lower.chain_pem + upper.chain_pem)

    assert list(PlatformIssuers({ONE: file}).of(ONE)) == [lower.certificate]
