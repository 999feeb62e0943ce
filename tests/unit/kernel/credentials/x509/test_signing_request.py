"""Certificate requests: what is read, what is refused, and in which words."""

import hashlib
import ipaddress
import math
from collections.abc import Sequence
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import dsa, ec, padding
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from orchid.kernel.credentials.keys import spki
from orchid.kernel.credentials.refusals import MalformedRequest
from orchid.kernel.credentials.x509 import der, names, pem, signing_request
from orchid.kernel.credentials.x509.names import MAX_NAMES
from tests.unit.kernel.credentials import samples
from tests.unit.kernel.credentials.samples import as_pem, name, raw_request, request, utf8

CN, O = names.COMMON_NAME, names.ORGANIZATION  # noqa: E741 - as they are called


def test_subject_names_and_key_are_read() -> None:
    """Everything that a signer may look at comes out as it was sent."""
    text = request(
        "node:n1",
        ("nodes", "dev"),
        alternative_names=(
            x509.DNSName("a.example"),
            x509.IPAddress(ipaddress.ip_address("10.0.0.1")),
            x509.IPAddress(ipaddress.ip_address("fd00::1")),
            x509.RFC822Name("a@b.example"),
            x509.UniformResourceIdentifier("spiffe://x/y"),
            x509.RegisteredID(x509.ObjectIdentifier("1.2.3")),
            x509.DNSName("b.example"),
        ),
    )

    read = signing_request.parse(text)

    assert read.subject.common_name == "node:n1"
    assert read.subject.organizations == ("nodes", "dev")
    assert read.dns_names == ("a.example", "b.example")
    assert [str(address) for address in read.ip_addresses] == ["10.0.0.1", "fd00::1"]
    assert read.email_addresses == ("a@b.example",)
    assert read.uris == ("spiffe://x/y",)
    assert read.other_names == 1
    assert read.extensions == (signing_request.SUBJECT_ALTERNATIVE_NAME,)
    assert read.public_key == samples.P256.public_key()
    assert read.weakness is None


@pytest.mark.parametrize("kind", samples.STRING_TYPES)
def test_every_string_type_is_read_as_its_text(kind: str) -> None:
    """A group is the same group in whichever string type it is written."""
    tag, codec = samples.STRING_TYPES[kind]
    subject = name((samples.attribute(O, tag, "masters".encode(codec)),))

    read = signing_request.parse(as_pem(raw_request(subject)))

    assert read.subject.organizations == ("masters",)


def test_values_are_found_in_multi_valued_names_and_the_last_common_name_counts() -> None:
    """Neither grouping nor repetition hides a value."""
    subject = name(
        (utf8(CN, "first"), utf8(O, "a")), (utf8(O, "b"), utf8(O, "c")), (utf8(CN, "last"),)
    )

    read = signing_request.parse(as_pem(raw_request(subject)))

    assert read.subject.common_name == "last"
    assert read.subject.organizations == ("a", "b", "c")


@pytest.mark.parametrize(
    "key", [samples.P256, samples.ED25519, samples.rsa_key()], ids=["ec", "ed", "rsa"]
)
def test_all_usual_keys_prove_themselves(key: ec.EllipticCurvePrivateKey) -> None:
    """ECDSA, Ed25519 and RSA requests are accepted, and their keys kept as the library has them."""
    read = signing_request.parse(request(key=key))

    assert read.weakness is None
    assert read.spki == spki(key.public_key())


def point_of(key: ec.EllipticCurvePublicKey, form: str) -> bytes:
    """Write the point of a key (X9.62 section 4.3.6): whole, by half, or as both at once."""
    whole = key.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
    half = key.public_bytes(Encoding.X962, PublicFormat.CompressedPoint)
    both = bytes((half[0] + 4,)) + whole[1:]
    return {"uncompressed": whole, "compressed": half, "hybrid": both}[form]


@pytest.mark.parametrize("form", ["uncompressed", "compressed", "hybrid"])
def test_a_key_is_kept_in_its_usual_encoding(form: str) -> None:
    """However its point was sent: a certificate has it in one form only."""
    public = samples.P256.public_key()
    curve = der.encode(
        der.SEQUENCE, der.encode_oid("1.2.840.10045.2.1"), der.encode_oid("1.2.840.10045.3.1.7")
    )
    sent = der.encode(der.SEQUENCE, curve, der.encode_bits(point_of(public, form)))

    read = signing_request.parse(as_pem(raw_request(name(), key_info=sent)))

    assert read.spki == spki(public)
    assert (read.spki == sent) is (form == "uncompressed")
    assert read.key_algorithm == "ECDSA-P256"


@pytest.mark.parametrize(
    ("key", "digest"),
    [
        (samples.rsa_key("rsa-1024-pkcs8.pem"), hashes.SHA256()),
        (ec.derive_private_key(7, ec.SECP224R1()), hashes.SHA256()),
    ],
    ids=["rsa-1024", "p224"],
)
def test_weak_keys_are_read_and_marked(
    key: ec.EllipticCurvePrivateKey, digest: hashes.HashAlgorithm
) -> None:
    """The API accepts what the reference accepts; no signer of ours signs it."""
    assert signing_request.parse(request(key=key, digest=digest)).weakness is not None


@pytest.mark.parametrize(
    "change",
    [
        lambda text: b"text before\n" + text + b"\ntext after\n-----BEGIN X-----\n",
        lambda text: text.replace(b"REQUEST-----\n", b"REQUEST-----\nName: value\n\n", 1),
        lambda text: text.replace(b"\n", b"\r\n"),
        lambda text: text.decode(),
    ],
)
def test_text_headers_and_line_ends_around_a_request_are_tolerated(change: object) -> None:
    """The first block counts, whatever surrounds it."""
    assert callable(change)
    assert signing_request.parse(change(request())).subject.common_name == "node:n1"


RSA_SHA256 = der.encode(der.SEQUENCE, der.encode_oid("1.2.840.113549.1.1.11"), der.encode(0x05))
NOT_PEM = "PEM block type must be CERTIFICATE REQUEST"


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        (b"", NOT_PEM),
        (b"nothing", NOT_PEM),
        (request().replace(b"CERTIFICATE REQUEST", b"NEW CERTIFICATE REQUEST"), NOT_PEM),
        (pem.encode("OTHER", b"x") + request(), NOT_PEM),
        (as_pem(b""), "asn1: syntax error: sequence truncated"),
        (as_pem(raw_request(name()) + b"\0"), "asn1: syntax error: trailing data"),
        (as_pem(raw_request(name())[:-5]), "asn1: syntax error: data truncated"),
        (as_pem(b"\x30\x00"), "asn1: syntax error: sequence truncated"),
        (as_pem(b"\x30\x80\x00\x00"), "asn1: syntax error: indefinite length found (not DER)"),
        (b"-----BEGIN CERTIFICATE REQUEST-----\na: b\n-----END CERTIFICATE REQUEST-----", NOT_PEM),
        (as_pem(b"\x02\x01\x05"), "asn1: structure error: tags don't match (16 vs 2"),
        (b"x" * (pem.MAX_BYTES + 1), "PEM text of more than"),
    ],
)
def test_what_is_no_request_is_refused_in_the_reference_words(text: bytes, detail: str) -> None:
    """The detail is the one that clients of the reference know."""
    with pytest.raises(MalformedRequest) as caught:
        signing_request.parse(text)

    assert str(caught.value).startswith(detail)


@pytest.mark.parametrize(
    ("key", "detail"),
    [
        (samples.P256, "x509: ECDSA verification failure"),
        (samples.ED25519, "x509: Ed25519 verification failure"),
        (samples.rsa_key(), "crypto/rsa: verification error"),
    ],
    ids=["ec", "ed", "rsa"],
)
def test_a_wrong_signature_is_refused(key: ec.EllipticCurvePrivateKey, detail: str) -> None:
    """A request that was changed after signing proves nothing."""
    block = pem.first(request("node:n1", key=key))
    assert block is not None
    changed = block.data.replace(b"node:n1", b"node:n2")

    with pytest.raises(MalformedRequest, match=detail):
        signing_request.parse_der(changed)


@pytest.mark.parametrize("hash_", [hashes.SHA256(), hashes.SHA384(), hashes.SHA512()])
@pytest.mark.parametrize("curve", [ec.SECP224R1(), ec.SECP256R1(), ec.SECP384R1(), ec.SECP521R1()])
def test_every_hash_of_an_elliptic_curve_is_verified(
    curve: ec.EllipticCurve, hash_: hashes.HashAlgorithm
) -> None:
    """The request says which it is; as it was sent it is accepted, changed it is refused."""
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "node:n1")])
    made = x509.CertificateSigningRequestBuilder().subject_name(subject)
    sent = made.sign(ec.generate_private_key(curve), hash_).public_bytes(Encoding.DER)

    assert signing_request.parse_der(sent).subject.common_name == "node:n1"
    with pytest.raises(MalformedRequest, match="ECDSA verification failure"):
        signing_request.parse_der(sent.replace(b"node:n1", b"node:n2"))


def test_a_request_signed_by_another_key_is_refused() -> None:
    """The signature must be the one of the key inside."""
    from orchid.kernel.credentials.keys import spki

    stolen = spki(samples.OTHER_P256.public_key())

    with pytest.raises(MalformedRequest, match="ECDSA verification failure"):
        signing_request.parse_der(raw_request(name(), key_info=stolen))


@pytest.mark.parametrize(
    ("key", "detail"),
    [
        (samples.rsa_key(), "an ECDSA public key, but have public key of type *rsa.PublicKey"),
        (samples.ED25519, "an ECDSA public key, but have public key of type ed25519.PublicKey"),
    ],
    ids=["rsa", "ed"],
)
def test_signature_of_another_sort_than_the_key_is_refused(key: Any, detail: str) -> None:
    """Both say what they are, and the refusal says both."""
    from orchid.kernel.credentials.keys import spki

    with pytest.raises(MalformedRequest) as caught:
        signing_request.parse_der(raw_request(name(), key_info=spki(key.public_key())))

    assert str(caught.value) == f"x509: signature algorithm specifies {detail}"


def test_rsa_key_without_null_parameters_is_refused_though_it_signed() -> None:
    """One key has one encoding, also when the signature fits."""
    key = samples.rsa_key()
    numbers = key.public_key().public_numbers()
    bare = der.encode(der.SEQUENCE, der.encode_oid("1.2.840.113549.1.1.1"))
    content = der.encode(der.SEQUENCE, der.encode_integer(numbers.n), der.encode_integer(numbers.e))
    body = der.encode(
        der.SEQUENCE,
        der.encode_integer(0),
        name(),
        der.encode(der.SEQUENCE, bare, der.encode_bits(content)),
        der.encode(0xA0),
    )
    signature = key.sign(body, padding.PKCS1v15(), hashes.SHA256())

    with pytest.raises(MalformedRequest, match="RSA key missing NULL parameters"):
        signing_request.parse_der(
            der.encode(der.SEQUENCE, body, RSA_SHA256, der.encode_bits(signature))
        )


def test_keys_of_unknown_kinds_are_refused() -> None:
    """DSA keys and curves that are not on the list prove nothing here."""
    from orchid.kernel.credentials.keys import spki

    exotic = ec.derive_private_key(5, ec.SECP256K1())
    old = dsa.generate_private_key(1024)  # noqa: S505 - refused whatever its size, and made faster

    for key, detail in ((exotic, "unsupported elliptic curve"), (old, "algorithm unimplemented")):
        key_info = spki(key.public_key())
        with pytest.raises(MalformedRequest, match=detail):
            signing_request.parse_der(raw_request(name(), key_info=key_info))


def test_bad_alternative_names_are_refused_in_the_reference_words() -> None:
    """Names that are no text, and addresses of no length, are refused at the door."""
    cases = {
        b"\x82\x02\xc3\xa9": "x509: SAN dNSName is malformed",
        b"\x81\x02\xc3\xa9": "x509: SAN rfc822Name is malformed",
        b"\x86\x02\xc3\xa9": "x509: SAN uniformResourceIdentifier is malformed",
        b"\x87\x03\x01\x02\x03": "x509: cannot parse IP address of length 3",
        b"\x86\x09http://[x": 'x509: cannot parse URI "http://[x"',
        b"\x86\x0ahttp://a b": 'x509: cannot parse URI "http://a b"',
        b"\x86\x0chttp://a/%zz": 'x509: cannot parse URI "http://a/%zz"',
        b"\x86\x0ahttp://a:x": 'x509: cannot parse URI "http://a:x"',
    }
    for entry, detail in cases.items():
        asked = samples.extension("2.5.29.17", der.encode(der.SEQUENCE, entry))
        with pytest.raises(MalformedRequest) as caught:
            signing_request.parse_der(raw_request(name(), asked))
        assert str(caught.value) == detail


def test_duplicate_extensions_are_refused_also_across_attributes() -> None:
    """The second list of extensions is looked at too."""
    one = samples.extension("2.5.29.19", b"\x30\x00")
    oid = der.encode_oid("1.2.840.113549.1.9.14")
    asked = der.encode(der.SEQUENCE, oid, der.encode(der.SET, der.encode(der.SEQUENCE, one)))

    with pytest.raises(MalformedRequest, match="duplicate requested extensions"):
        signing_request.parse_der(raw_request(name(), attributes=asked + asked))


# Exponents of Mersenne primes: 2**n - 1 is a prime of n bits, so large keys need not be searched.
MERSENNE = {"16384 bits": (4423, 4253, 3217, 2281, 2203, 7), "8704 bits": (4423, 4253, 19, 7, 2)}


def signed_by_primes(primes: Sequence[int], exponent: int) -> bytes:
    """Write a request of an RSA key and sign it rightly, whatever the size of the key."""
    modulus = math.prod(primes)
    size = (modulus.bit_length() + 7) // 8
    body = der.encode(
        der.SEQUENCE,
        der.encode_integer(0),
        name(),
        rsa_info(modulus, exponent),
        der.encode(0xA0),
    )
    algorithm = der.encode(der.SEQUENCE, der.encode_oid("2.16.840.1.101.3.4.2.1"), b"\x05\x00")
    digest = der.encode(der.OCTET_STRING, hashlib.sha256(body).digest())
    content = der.encode(der.SEQUENCE, algorithm, digest)
    message = int.from_bytes(b"\0\1" + b"\xff" * (size - len(content) - 3) + b"\0" + content, "big")
    signature = 0
    for prime in primes:  # by the Chinese remainder theorem; one power of that size takes long
        other = modulus // prime
        part = pow(message, pow(exponent, -1, prime - 1), prime)
        signature += part * other * pow(other, -1, prime)
    return der.encode(
        der.SEQUENCE, body, RSA_SHA256, der.encode_bits((signature % modulus).to_bytes(size, "big"))
    )


def rsa_info(modulus: int, exponent: int) -> bytes:
    key = der.encode(der.SEQUENCE, der.encode_integer(modulus), der.encode_integer(exponent))
    algorithm = der.encode(der.SEQUENCE, der.encode_oid("1.2.840.113549.1.1.1"), b"\x05\x00")
    return der.encode(der.SEQUENCE, algorithm, der.encode_bits(key))


def rsa_primes() -> tuple[int, int]:
    numbers = samples.rsa_key().private_numbers()
    return numbers.p, numbers.q


def test_rsa_requests_of_our_own_signing_are_accepted() -> None:
    """The refusals in the next tests are due to the size of the key, not to the signature."""
    for exponent in (65537, 2**63 + 29):
        assert signing_request.parse_der(signed_by_primes(rsa_primes(), exponent)).public_key


@pytest.mark.parametrize("size", MERSENNE)
def test_an_enormous_rsa_key_is_refused_though_it_signed(size: str) -> None:
    """Verifying grows with the cube of the size, so it is not begun."""
    data = signed_by_primes([2**n - 1 for n in MERSENNE[size]], 65537)

    with pytest.raises(MalformedRequest, match="RSA keys of more than 8192 bits"):
        signing_request.parse_der(data)


def test_an_enormous_rsa_exponent_is_refused_though_it_signed() -> None:
    """More than 64 bits are of no use to anybody and cost as much as a larger key."""
    with pytest.raises(MalformedRequest, match="RSA public exponent is not acceptable"):
        signing_request.parse_der(signed_by_primes(rsa_primes(), 2**65 + 17))


def test_an_even_rsa_exponent_is_refused() -> None:
    """There is no signature with one, so nothing is verified."""
    with pytest.raises(MalformedRequest, match=r"RSA public exponent|invalid public key"):
        signing_request.parse_der(raw_request(name(), key_info=rsa_info(2**2048 - 1, 4)))


@pytest.mark.parametrize(("count", "accepted"), [(MAX_NAMES, True), (MAX_NAMES + 1, False)])
def test_alternative_names_have_a_number_that_is_enough(count: int, accepted: bool) -> None:
    """The last permitted one is read, the next one ends the reading."""
    entry = der.encode(0x82, b"a.example")
    asked = samples.extension("2.5.29.17", der.encode(der.SEQUENCE, *[entry] * count))
    data = raw_request(name(), asked)

    if accepted:
        assert len(signing_request.parse_der(data).dns_names) == count
    else:
        with pytest.raises(MalformedRequest, match=f"more than {MAX_NAMES} subjectAltNames"):
            signing_request.parse_der(data)


def test_a_request_asked_about_again_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Valid requests are cached by their bytes; refused and large ones are not."""
    text = request("node:remembered")
    first = signing_request.parse_once(text)
    monkeypatch.setattr(x509, "load_der_x509_csr", lambda _: pytest.fail("read again"))

    assert signing_request.parse_once(bytes(text)) is first
    for _ in range(2):
        with pytest.raises(MalformedRequest):
            signing_request.parse_once(b"nothing")


class PanicException(BaseException):
    """Named like the one of the X.509 library, which cannot be imported."""


def test_a_panic_of_the_library_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    """The request fails, the worker lives; an interrupt still passes."""

    def panic(_: bytes) -> None:
        raise PanicException("index out of bounds")

    def interrupt(_: bytes) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(x509, "load_der_x509_csr", panic)
    with pytest.raises(MalformedRequest, match="malformed certificate request"):
        signing_request.parse(request())
    monkeypatch.setattr(x509, "load_der_x509_csr", interrupt)
    with pytest.raises(KeyboardInterrupt):
        signing_request.parse(request())


def test_broken_requests_are_refused_by_name() -> None:
    """Cut anywhere, changed anywhere, nested without end: always the same kind of refusal."""
    for label, text in samples.broken_requests():
        try:
            signing_request.parse(text)
        except MalformedRequest:
            continue
        pytest.fail(f"{label} was accepted")


@given(st.binary(max_size=300))
def test_any_bytes_are_refused_by_name(data: bytes) -> None:
    """Any input gives a named refusal."""
    with pytest.raises(MalformedRequest):
        signing_request.parse_der(data)


def _attribute(*values: bytes) -> bytes:
    oid = der.encode_oid("1.2.840.113549.1.9.14")
    return der.encode(der.SEQUENCE, oid, der.encode(der.SET, *values))


_NOTHING = der.encode(der.SEQUENCE)
_MOST = signing_request.MOST_REQUESTED
ATTRIBUTES = {
    "attributes": (_attribute(), _MOST),
    "values": (_attribute(*[_NOTHING] * (_MOST - 1)), 1),
    "extensions": (
        _attribute(
            der.encode(
                der.SEQUENCE, *(samples.extension(f"1.2.{n}", b"") for n in range(_MOST - 2))
            )
        ),
        1,
    ),
}


@pytest.mark.parametrize("kind", ATTRIBUTES)
def test_what_a_request_asks_for_has_a_limit(kind: str) -> None:
    """Attributes, their values and extensions count together."""
    part, count = ATTRIBUTES[kind]
    subject = name((utf8(CN, "a"),))

    signing_request.parse_der(raw_request(subject, attributes=part * count))
    with pytest.raises(MalformedRequest, match=f"at most {_MOST} attributes"):
        signing_request.parse_der(raw_request(subject, attributes=part * count + _attribute()))
