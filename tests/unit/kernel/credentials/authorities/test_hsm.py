"""Keys in a hardware security module: signatures, and everything that can go wrong with it."""

import builtins
import contextlib
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from orchid.kernel.credentials.authorities import hsm as module
from orchid.kernel.credentials.authorities.authority import Authority
from orchid.kernel.credentials.authorities.authority_keys import algorithm_name
from orchid.kernel.credentials.authorities.hsm import NO_HSM, Hsm, HsmSettings
from orchid.kernel.credentials.refusals import HsmUnavailable, Refusal, UnsupportedKey
from orchid.kernel.credentials.x509.revocation_list import RevokedCertificates, next_edition
from tests.soft_hsm import TOKEN, SoftHsm

NOW, DAY = datetime.now(UTC).replace(microsecond=0), timedelta(days=1)


@pytest.fixture
def soft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SoftHsm:
    made = SoftHsm(tmp_path / "hsm")
    monkeypatch.setenv("SOFTHSM2_CONF", str(made.configuration))
    return made


@pytest.mark.parametrize(
    ("curve", "algorithm"),
    [("secp256r1", "ECDSA-P256"), ("secp384r1", "ECDSA-P384"), ("", "RSA-3072")],
)
def test_an_authority_signs_with_a_key_in_the_hsm(
    soft: SoftHsm, curve: str, algorithm: str
) -> None:
    """Its own certificate, one for a server, a list, and a request: others verify them."""
    if curve:
        soft.generate("web-1", curve)
    else:
        soft.put_rsa("web-1", 3072)
    key = Hsm(soft.settings).key("web-1")

    authority = Authority.create("Web CA", now=NOW, key=key)
    leaf = authority.issue_serving("web", lifetime=DAY, now=NOW)
    edition = next_edition(RevokedCertificates(), NOW)
    crl = authority.sign_revocation_list(RevokedCertificates(), edition)

    assert algorithm_name(authority.public_key) == algorithm
    authority.certificate.verify_directly_issued_by(authority.certificate)
    served = x509.load_pem_x509_certificate(leaf.chain)
    served.verify_directly_issued_by(authority.certificate)
    public: Any = authority.certificate.public_key()
    assert x509.load_der_x509_crl(crl).is_signature_valid(public)
    assert x509.load_pem_x509_csr(authority.request().encode()).is_signature_valid


def test_the_private_key_never_leaves(soft: SoftHsm) -> None:
    """Whatever asks for it is refused."""
    soft.generate("web-1")
    key = Hsm(soft.settings).key("web-1")
    assert isinstance(key, ec.EllipticCurvePrivateKey)

    with pytest.raises(UnsupportedKey, match="does not leave"):
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    with pytest.raises(UnsupportedKey, match="does not leave"):
        key.private_numbers()
    with pytest.raises(UnsupportedKey, match="does not leave"):
        Authority.create("Web CA", now=NOW, key=key).key_pem()


def test_a_session_that_ended_is_opened_again(soft: SoftHsm) -> None:
    """As after the removal of a token: the library is initialised again under the session."""
    soft.generate("web-1")
    authority = Authority.create("Web CA", now=NOW, key=Hsm(soft.settings).key("web-1"))
    soft.generate("other")  # ends all sessions of this process

    leaf = authority.issue_serving("web", lifetime=DAY, now=NOW)

    assert leaf.chain


def test_a_key_that_was_replaced_under_its_label_signs_nothing(soft: SoftHsm) -> None:
    """Verifiers would reject the signature; here it is noticed first."""
    soft.generate("web-1")
    authority = Authority.create("Web CA", now=NOW, key=Hsm(soft.settings).key("web-1"))
    soft.destroy("web-1")
    soft.generate("web-1")

    with pytest.raises(HsmUnavailable, match="another key"):
        authority.issue_serving("web", lifetime=DAY, now=NOW)


def test_a_wrong_pin_is_tried_once(soft: SoftHsm, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tokens are locked after a few attempts; a corrected file is read at the next use."""
    soft.generate("web-1")
    soft.write_pin("1111")
    hsm = Hsm(soft.settings)
    with pytest.raises(HsmUnavailable, match="refuses the PIN") as refused:
        hsm.key("web-1")
    assert "1111" not in str(refused.value)
    from orchid.kernel.credentials.authorities import pkcs11_session

    opened: list[object] = []
    monkeypatch.setattr(pkcs11_session, "Pkcs11Session", lambda *given: opened.append(given))
    with pytest.raises(HsmUnavailable, match="tried again when the file changes"):
        hsm.key("web-1")
    monkeypatch.undo()
    assert opened == []

    monkeypatch.setenv("SOFTHSM2_CONF", str(soft.configuration))
    soft.write_pin("482913")
    assert hsm.key("web-1")


@pytest.mark.parametrize("problem", ["module", "token", "pin file", "label", "curve", "twice"])
def test_what_is_missing_is_named(soft: SoftHsm, tmp_path: Path, problem: str) -> None:
    """Each problem has a message that an operator can act on."""
    given, label = soft.settings, "web-1"
    soft.generate("web-1")
    soft.generate("large", curve="secp521r1")
    if problem == "module":
        given = HsmSettings(tmp_path / "none.so", TOKEN, soft.pin_file)
    elif problem == "token":
        given = HsmSettings(soft.module, "other", soft.pin_file)
    elif problem == "pin file":
        soft.pin_file.chmod(0o644)
    elif problem == "twice":
        soft.generate("web-1")
    else:
        label = {"label": "web-9", "curve": "large"}[problem]
    texts = {
        "module": "none.so",
        "token": "other",
        "pin file": str(soft.pin_file),
        "label": "no private key web-9",
        "curve": "P-256 or P-384",
        "twice": "several keys web-1",
    }

    with pytest.raises(Refusal, match=texts[problem]):
        Hsm(given).key(label)


def test_without_settings_or_package_the_message_says_what_to_do(
    soft: SoftHsm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server without an HSM, and one whose installation lacks the extra."""
    with pytest.raises(HsmUnavailable, match="--pkcs11-module"):
        NO_HSM.key("web-1")
    real = builtins.__import__

    def without(name: str, *given: Any, **named: Any) -> Any:
        if "pkcs11" in name or "pkcs11_session" in (given[2] if len(given) > 2 else () or ()):
            raise ImportError(name)
        return real(name, *given, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(HsmUnavailable, match="extra hsm"):
        Hsm(soft.settings).key("web-1")


def test_a_module_that_hangs_does_not_collect_threads(
    soft: SoftHsm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others give up after a while, and requests wait in the store."""
    monkeypatch.setattr(module, "BUSY_SECONDS", 0.01)
    hsm, held, end = Hsm(soft.settings), threading.Event(), threading.Event()

    class Hanging:
        def public_key(self, label: str) -> object:
            held.set()
            end.wait(10)
            return None

    monkeypatch.setattr(hsm, "_session", Hanging())

    def wait() -> None:
        with contextlib.suppress(Refusal):
            hsm.key("web-1")

    thread = threading.Thread(target=wait)
    thread.start()
    held.wait(10)
    try:
        with pytest.raises(HsmUnavailable, match="does not answer"):
            hsm.key("web-1")
    finally:
        end.set()
        thread.join(10)
