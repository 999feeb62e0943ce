"""Certificates are inspected before they are signed: a writer that errs gets no signature."""

import ipaddress
from collections.abc import Callable

import pytest
from cryptography import x509

from orchid.kernel.credentials.authorities import authority as authority_module
from orchid.kernel.credentials.authorities import profiles
from orchid.kernel.credentials.authorities.authority import Authority
from orchid.kernel.credentials.keys import spki
from orchid.kernel.credentials.refusals import NotPermitted, UnsoundCertificate
from orchid.kernel.credentials.x509 import certificate_body, names, signing_request
from orchid.kernel.wire.struct import replace
from tests.unit.kernel.credentials import samples
from tests.unit.kernel.credentials.samples import CLIENT_USAGES, DAY, NODE_CLIENT, NOW, request

CA = Authority.create("root", now=NOW)


def sign(
    text: bytes,
    asked: tuple[str, ...] = CLIENT_USAGES,
    profile: profiles.Profile = NODE_CLIENT,
    *,
    ca: Authority = CA,
) -> bytes:
    return ca.sign(signing_request.parse(text), asked, DAY, profile=profile, now=NOW)


def tampering() -> dict[str, Callable[[certificate_body.Template], dict[str, object]]]:
    """Ways in which the bytes could come out other than agreed."""
    return {
        "an authority": lambda _: {"authority": True},
        "another user": lambda _: {"subject": names.subject("node:other", ["nodes"])},
        "another group": lambda _: {"subject": names.subject("node:n1", ["nodes", "masters"])},
        "another key": lambda _: {"spki": spki(samples.OTHER_P256.public_key())},
        "a longer life": lambda t: {"not_after": t.not_after + DAY},
        "an earlier start": lambda t: {"not_before": t.not_before - DAY},
        "another name": lambda _: {"dns_names": ("evil.example",)},
        "another address": lambda _: {"ip_addresses": (ipaddress.ip_address("10.0.0.9"),)},
        "more purposes": lambda t: {"extended_usages": (*t.extended_usages, "2.5.29.37.0")},
        "more usages": lambda t: {"key_usages": t.key_usages | {5}},
        "no usages": lambda _: {"key_usages": frozenset()},
    }


@pytest.mark.parametrize("case", tampering())
def test_bytes_that_differ_from_what_was_agreed_are_not_signed(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault in the writer is found by the reader, before the key is used."""
    change = tampering()[case]
    honest = certificate_body.encode_body

    def dishonest(template: certificate_body.Template, *rest: object) -> bytes:
        return honest(replace(template, **change(template)), *rest)

    ca = Authority.load(CA.chain_pem, CA.key_pem().reveal().encode())
    assert sign(request(), ca=ca)  # whose extensions are known as sound from now on
    ca._sign = lambda _: pytest.fail("the key was used")
    monkeypatch.setattr(authority_module, "encode_body", dishonest)

    with pytest.raises(UnsoundCertificate):
        sign(request(), ca=ca)


def test_a_serial_number_that_is_not_ours_is_not_signed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Zero, and numbers of more than twenty octets, are refused."""
    for serial in (0, 1 << 159):
        monkeypatch.setattr(authority_module, "new_serial", lambda *_, serial=serial: serial)
        with pytest.raises(UnsoundCertificate):
            sign(request())


def test_a_serial_number_other_than_the_agreed_one_is_not_signed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The number in the bytes is compared, not only the one that was drawn."""
    honest = certificate_body.encode_body

    def dishonest(template: certificate_body.Template, serial: int, *rest: bytes) -> bytes:
        return honest(template, serial ^ 1, *rest)

    monkeypatch.setattr(authority_module, "encode_body", dishonest)

    with pytest.raises(UnsoundCertificate):
        sign(request())


def test_the_profile_is_asked_about_the_bytes_too() -> None:
    """A rule that lets a request pass and then the certificate fail stops the signature."""
    answers = iter([True, False])

    def rules(_request: object, _usages: object) -> None:
        if not next(answers):
            raise NotPermitted("second look")

    with pytest.raises(UnsoundCertificate, match="second look"):
        sign(request(), CLIENT_USAGES, profiles.Profile("example.com/x", rules))


def with_another_name(template: certificate_body.Template) -> bytes:
    """Write the names, and one of a kind that is never copied."""
    honest = HONEST_NAMES(template) or b"\x30\x00"
    return bytes((0x30, honest[1] + 4)) + honest[2:] + b"\x88\x02\x2a\x03"


HONEST_NAMES = certificate_body._encode_alternative_names
HONEST_EXTENSION = certificate_body.encode_extension
WRITERS: dict[str, tuple[str, Callable[..., bytes]]] = {
    "a name of another kind": ("_encode_alternative_names", with_another_name),
    "another key identifier": ("key_digest", lambda _: bytes(20)),
    "critical flags": (
        "encode_extension",
        lambda oid, value, critical=False: HONEST_EXTENSION(oid, value, critical=not critical),
    ),
    "no critical flags": (
        "encode_extension",
        lambda oid, value, critical=False: HONEST_EXTENSION(oid, value),
    ),
}


@pytest.mark.parametrize("case", WRITERS)
@pytest.mark.parametrize("hosts", [(), ("a.example",)], ids=["no name", "a name"])
def test_extensions_that_differ_in_anything_are_not_signed(
    hosts: tuple[str, ...], case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in what the template does not say but the RFC does."""
    where, writer = WRITERS[case]
    text = request("anyone", (), alternative_names=tuple(map(x509.DNSName, hosts)))
    assert sign(text, profile=samples.CLIENT)
    for remembered in ("_encode_usages", "encode_authority_key"):
        uncached = getattr(certificate_body, remembered).__wrapped__
        monkeypatch.setattr(certificate_body, remembered, uncached)
    monkeypatch.setattr(certificate_body, where, writer)

    with pytest.raises(UnsoundCertificate, match="not what was agreed"):
        sign(text, profile=samples.CLIENT)


Writer = Callable[..., bytes]


def write_with(monkeypatch: pytest.MonkeyPatch, change: Callable[[Writer], Writer]) -> None:
    """Have bodies written by another writer, made from the honest one."""
    writer = change(certificate_body.encode_body)
    monkeypatch.setattr(authority_module, "encode_body", writer)


def test_another_key_under_the_identifier_of_the_agreed_one_is_not_signed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The key itself is compared, not only what names it."""
    other = spki(samples.OTHER_P256.public_key())

    def with_other_key(honest: Writer) -> Writer:
        return lambda template, *rest: honest(template, *rest).replace(template.spki, other)

    write_with(monkeypatch, with_other_key)

    with pytest.raises(UnsoundCertificate, match="not what was agreed"):
        sign(request())


def test_extensions_that_were_sound_for_other_usages_are_not_signed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An earlier inspection is not reused."""
    assert sign(request(), (*CLIENT_USAGES, "key encipherment"))

    def with_one_more(honest: Writer) -> Writer:
        return lambda template, *rest: honest(
            replace(template, key_usages=template.key_usages | {2}), *rest
        )

    write_with(monkeypatch, with_one_more)

    with pytest.raises(UnsoundCertificate, match="not what was agreed"):
        sign(request(), CLIENT_USAGES)


def test_a_key_identifier_that_stands_twice_is_not_taken_for_two_of_another_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An authority's own key may be certified; that says nothing about who signed other ones."""
    assert sign(request(key=CA._private))

    def in_place_of_the_authority(honest: Writer) -> Writer:
        return lambda template, *rest: honest(
            template, *rest[:-1], certificate_body.key_digest(template.spki)
        )

    write_with(monkeypatch, in_place_of_the_authority)

    with pytest.raises(UnsoundCertificate, match="not what was agreed"):
        sign(request())


def test_names_that_were_sound_without_a_subject_are_looked_at_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They are critical where there is nothing else to go by, and only there."""
    host = (x509.DNSName("a.example"),)
    assert sign(request("", (), alternative_names=host), profile=samples.CLIENT)

    def critical(oid: bytes, value: bytes, *, critical: bool = False) -> bytes:
        names_too = critical or oid == certificate_body.ALTERNATIVE_NAMES
        return HONEST_EXTENSION(oid, value, critical=names_too)

    monkeypatch.setattr(certificate_body, "encode_extension", critical)

    with pytest.raises(UnsoundCertificate, match="not what was agreed"):
        sign(request("anyone", (), alternative_names=host), profile=samples.CLIENT)
