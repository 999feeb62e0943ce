"""The server's own certificates: issued again when they are due, and when a pair does not match."""

import base64
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from orchid.assembly import first_files
from orchid.kernel.credentials import keys
from orchid.kernel.credentials.authorities.authority import Authority
from orchid.kernel.credentials.files import write_private
from orchid.kernel.settings import data_directory
from orchid.kernel.settings.checking import Settings
from orchid.kernel.settings.data_directory import DataDirectory
from tests.api.world import settings

NOW = datetime(2026, 5, 1, tzinfo=UTC)
DAY = timedelta(days=1)


@pytest.fixture
def chosen(tmp_path: Path) -> Settings:
    found: Settings = settings(tmp_path / "data")
    return found


@pytest.fixture
def files(chosen: Settings) -> DataDirectory:
    return first_files.prepare(chosen, NOW)


def serving(files: DataDirectory) -> x509.Certificate:
    return x509.load_pem_x509_certificate(files.serving_certificate.read_bytes())


def embedded(files: DataDirectory, word: str) -> bytes:
    found = re.search(rf"{word}-data: (\S+)", files.kubeconfig.read_text())
    assert found is not None
    return base64.b64decode(found[1])


def admin(files: DataDirectory) -> x509.Certificate:
    return x509.load_pem_x509_certificate(embedded(files, "client-certificate"))


def matches(certificate: x509.Certificate, key: bytes) -> bool:
    return keys.read_private_key(key).public_key() == certificate.public_key()


def test_certificates_are_renewed_after_two_thirds_of_their_life(
    chosen: Settings, files: DataDirectory
) -> None:
    """Each with a new key, and not before."""
    first = serving(files), admin(files)
    third = timedelta(days=365) / 3

    early = data_directory.renew(chosen, files, NOW + 2 * third - DAY)
    unchanged = serving(files), admin(files)
    due = data_directory.renew(chosen, files, NOW + 2 * third + DAY)
    after = serving(files), admin(files)

    assert (early, due) == (False, True)
    assert unchanged == first
    for old, new in zip(first, after, strict=True):
        assert new.serial_number != old.serial_number
        assert new.public_key() != old.public_key()
        assert new.subject == old.subject
    assert matches(after[0], files.serving_key.read_bytes())
    assert matches(after[1], embedded(files, "client-key"))
    modes = {path.stat().st_mode & 0o777 for path in (files.serving_key, files.kubeconfig)}
    assert modes == {0o600}


def swapped_key(files: DataDirectory) -> None:
    write_private(files.serving_key, keys.generate().pem().reveal().encode())


def broken_key(files: DataDirectory) -> None:
    write_private(files.serving_key, b"nothing")


def missing_key(files: DataDirectory) -> None:
    files.serving_key.unlink()


def broken_certificate(files: DataDirectory) -> None:
    write_private(files.serving_certificate, b"nothing")


def other_authority(files: DataDirectory) -> None:
    """Of the same name, with another key."""
    made = Authority.create("orchid-ca", now=NOW).issue_serving("localhost", lifetime=DAY, now=NOW)
    write_private(files.serving_key, made.key.reveal().encode())
    write_private(files.serving_certificate, made.chain)


@pytest.mark.parametrize(
    "damage", [swapped_key, broken_key, missing_key, broken_certificate, other_authority]
)
def test_a_pair_that_does_not_match_is_replaced_at_the_start(
    chosen: Settings, files: DataDirectory, damage: Callable[[DataDirectory], None]
) -> None:
    """As after a crash between its two files; the administrator's certificate stays."""
    before = admin(files)
    damage(files)

    first_files.prepare(chosen, NOW)

    authority = x509.load_pem_x509_certificate(files.ca_certificate.read_bytes())
    serving(files).verify_directly_issued_by(authority)
    assert matches(serving(files), files.serving_key.read_bytes())
    assert admin(files) == before


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (r"client-key-data: \S+", "client-key-data: AAAA"),
        (r"client-certificate-data: \S+", "client-certificate-data: !"),
        (r"server https://\S+", "server https://elsewhere:1"),
        (r"client-key-data: \S+\n", ""),
        (r"\A.*\n", ""),
        (r"(?s)\A.*\Z", ""),
    ],
)
def test_a_kubeconfig_that_gives_no_access_is_replaced(
    chosen: Settings, files: DataDirectory, old: str, new: str
) -> None:
    """A key that does not match, a server that moved, a file that was emptied."""
    before = serving(files)
    write_private(files.kubeconfig, re.sub(old, new, files.kubeconfig.read_text()).encode())

    assert data_directory.renew(chosen, files, NOW)

    assert matches(admin(files), embedded(files, "client-key"))
    assert serving(files) == before


def test_another_name_of_the_server_is_in_a_new_certificate(
    chosen: Settings, files: DataDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while the server runs: a host gets another name."""
    monkeypatch.setattr(data_directory.socket, "gethostname", lambda: "renamed.example")

    assert data_directory.renew(chosen, files, NOW)
    assert not data_directory.renew(chosen, files, NOW)

    names = serving(files).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "renamed.example" in names.get_values_for_type(x509.DNSName)


def test_certificates_that_end_with_their_authority_are_not_issued_again_and_again(
    chosen: Settings, files: DataDirectory
) -> None:
    """A new one would not last longer."""
    end = x509.load_pem_x509_certificate(files.ca_certificate.read_bytes()).not_valid_after_utc
    first = data_directory.renew(chosen, files, end - 100 * DAY)
    again = data_directory.renew(chosen, files, end - DAY)

    assert (first, again) == (True, False)
    assert serving(files).not_valid_after_utc == end


def test_a_certificate_of_the_operator_is_never_touched(tmp_path: Path) -> None:
    """`--tls-cert-file` names it."""
    data = tmp_path / "data"
    files = first_files.prepare(settings(data), NOW)
    own = settings(
        data, tls_cert_file=str(files.serving_certificate), tls_private_key_file="/no/such/key"
    )
    before = files.serving_certificate.read_bytes()
    swapped_key(files)

    data_directory.renew(own, files, NOW + 300 * DAY)

    assert files.serving_certificate.read_bytes() == before


def test_a_lost_authority_is_never_made_again_while_the_server_runs(
    chosen: Settings, files: DataDirectory
) -> None:
    """All that it issued would be refused."""
    for path in (files.ca_certificate, files.ca_key):
        path.unlink()

    with pytest.raises(data_directory.Refusal):
        data_directory.renew(chosen, files, NOW)

    assert not files.ca_key.exists()
