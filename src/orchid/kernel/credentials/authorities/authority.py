"""Certificate authorities: create or load one, and sign certificates under a profile.

Start with `Authority.load(certificates, key)` or `Authority.create(name, ...)`, then `sign` a
request under a profile, or `issue` a certificate for a new key. issuer_chain.py checks that a chain
can be an authority, authority_keys.py its keys; validity.py computes periods.

A certificate is never a copy of its request: its bytes are written from a `Template`
(kernel/credentials/x509/certificate_body.py), which holds all permitted content. Before the key is
used, the X.509 library, which did not write them, parses these bytes, and they are compared with
the template and the authority (kernel/credentials/x509/inspection.py) and with the profile. The
signature covers exactly the inspected bytes. Only `create` and `certify` make CA certificates.
"""

import datetime
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from orchid.kernel.credentials import files
from orchid.kernel.credentials.authorities import authority_keys
from orchid.kernel.credentials.authorities.authority_keys import (
    ECDSA_P256,
    AuthorityKey,
    CertifiedKey,
    generate,
    signer,
)
from orchid.kernel.credentials.authorities.authority_request import authority_request
from orchid.kernel.credentials.authorities.issuer_chain import (
    encode_intermediates,
    may_certify,
    may_sign_lists,
    purposes,
    refuse_out_of_time,
    refuse_unfit,
    spki_of,
    subject_key_id,
)
from orchid.kernel.credentials.authorities.issuer_limits import limits_of
from orchid.kernel.credentials.authorities.profiles import Profile, refuse_bad_host
from orchid.kernel.credentials.authorities.validity import (
    BACKDATE,
    authority_validity,
    leaf_validity,
    pod_validity,
)
from orchid.kernel.credentials.keys import encode_private, spki
from orchid.kernel.credentials.refusals import (
    AuthorityUnusable,
    NotPermitted,
    NotPermittedToSign,
    Refusal,
    UnsoundCertificate,
)
from orchid.kernel.credentials.secret import SecretValue
from orchid.kernel.credentials.x509 import certificates, names, pem
from orchid.kernel.credentials.x509.certificate_body import (
    Template,
    assemble,
    encode_body,
    key_digest,
)
from orchid.kernel.credentials.x509.inspection import Inspector
from orchid.kernel.credentials.x509.names import IPAddress
from orchid.kernel.credentials.x509.revocation_list import (
    Edition,
    RevokedCertificates,
    encode_list_body,
    refuse_unsound_list,
)
from orchid.kernel.credentials.x509.serial_numbers import Random, new_serial
from orchid.kernel.credentials.x509.signing_request import SigningRequest
from orchid.kernel.credentials.x509.usages import (
    CLIENT_AUTH,
    DIGITAL_SIGNATURE,
    SERVER_AUTH,
    agreed_usages,
    extended_usages,
    key_usage_bits,
)

CA_LIFETIME = datetime.timedelta(days=3650)
FIRST_NAME = "orchid-ca"  # the common name of the first cluster CA that a server creates


class SignedCertificate(msgspec.Struct, frozen=True):
    """A certificate for a key of this server: the PEM chain and the PEM key."""

    chain: bytes
    key: SecretValue


class Authority:
    """A CA certificate, the chain above it, and its key."""

    def __init__(
        self,
        chain: Sequence[x509.Certificate],
        key: AuthorityKey,
        *,
        cross: Sequence[x509.Certificate] = (),
        random: Random = os.urandom,
    ) -> None:
        """`cross`: certificates for the same key by an earlier authority, and the chain above them,
        for verifiers that trust only that one.
        """
        refuse_unfit(chain, key)
        self.chain = tuple(chain)
        self.certificate = chain[0]
        self.purposes = purposes(chain)
        self.limits = limits_of(chain)
        self._random = random
        self._algorithm, self._sign = signer(key)
        self._private = key
        self._der = certificates.encode(self.certificate)
        self._issuer = certificates.read_parts(self._der).subject
        # The key identifier in issued certificates; empty if the authority has none.
        self.key_id = subject_key_id(self.certificate)
        self._signs_lists = may_sign_lists(self.certificate)
        # A verifier needs every certificate of the chain, so the first expiry counts.
        self._end = min(link.not_valid_after_utc for link in self.chain)
        self._inspector = Inspector(end=self._end, authority_key=self.key_id)
        self._intermediates = encode_intermediates((*self.chain, *cross))

    @classmethod
    def create(
        cls,
        subject: str | names.DistinguishedName,
        *,
        now: datetime.datetime,
        lifetime: datetime.timedelta = CA_LIFETIME,
        algorithm: str = ECDSA_P256,
        uris: Iterable[str] = (),
        key: AuthorityKey | None = None,
        random: Random = os.urandom,
    ) -> "Authority":
        """Create a key and a self-signed CA certificate; a subject may be a common name alone.

        `key`: one that exists already, instead of one of the algorithm.
        """
        key = key or generate(algorithm)
        identifier, sign = signer(key)
        start = now.replace(microsecond=0)
        name = names.subject(subject) if isinstance(subject, str) else subject
        if not (encoded := name.encode())[2:]:
            # RFC 5280 section 4.1.2.4: an issuer has a name.
            raise AuthorityUnusable("the subject of an authority must not be empty")
        template = Template(
            subject=name,
            spki=spki(key.public_key()),
            not_before=start - BACKDATE,
            not_after=start + lifetime,
            key_usages=key_usage_bits(("cert sign", "crl sign")),
            uris=tuple(uris),
            authority=True,
        )
        body = encode_body(template, new_serial(now, random), identifier, encoded, b"")
        certificate = certificates.parse(assemble(body, identifier, sign(body)))
        return cls((certificate,), key, random=random)

    @classmethod
    def load(
        cls,
        chain: bytes,
        key: bytes,
        *,
        now: datetime.datetime | None = None,
        cross: str = "",
        random: Random = os.urandom,
        read_key: Callable[[bytes], AuthorityKey] = authority_keys.read,
    ) -> "Authority":
        """Load an authority from PEM: its certificate, the chain above it, and its key.

        With `now`, a chain that is not valid then is refused too; otherwise signing fails later.
        `cross`: cross certificates, which issued chains have, too.
        """
        try:
            private = read_key(key)
        except Refusal as refusal:
            raise AuthorityUnusable(str(refusal)) from None
        return cls.of_key(chain, private, now=now, cross=cross, random=random)

    @classmethod
    def of_key(
        cls,
        chain: bytes,
        key: AuthorityKey,
        *,
        now: datetime.datetime | None = None,
        cross: str = "",
        random: Random = os.urandom,
    ) -> "Authority":
        """`load` with a key that was read, or that is in an HSM."""
        try:
            parsed = certificates.parse_blocks(chain)
            others = certificates.parse_blocks(cross) if cross else ()
        except Refusal as refusal:
            raise AuthorityUnusable(str(refusal)) from None
        if now is not None:
            refuse_out_of_time(parsed, now)
        return cls(parsed, key, cross=others, random=random)

    @classmethod
    def load_untrusted(
        cls, chain: bytes, key: bytes, *, now: datetime.datetime | None = None, cross: str = ""
    ) -> "Authority":
        """`load` for a key from a request: refuses keys that are slow to check."""
        return cls.load(chain, key, now=now, cross=cross, read_key=authority_keys.read_untrusted)

    @classmethod
    def load_files(cls, chain: Path, key: Path, *, random: Random = os.urandom) -> "Authority":
        """Load an authority from two files; the key file must be readable by its owner only."""
        try:
            return cls.load(files.read_bounded(chain), files.read_private(key), random=random)
        except Refusal as refusal:
            raise AuthorityUnusable(f'error reading CA cert file "{chain}": {refusal}') from None

    @classmethod
    def following(
        cls, chain: Path, key: Path, *, monotonic: Callable[[], float] | None = None
    ) -> "files.Reloading[Authority]":
        """Follow two files: a new pair is used once both are readable and match."""
        return files.Reloading(
            (chain, key), lambda: cls.load_files(chain, key), monotonic=monotonic
        )

    @property
    def public_key(self) -> CertifiedKey:
        return self._private.public_key()

    @property
    def certificate_pem(self) -> bytes:
        """The authority's certificate."""
        return pem.encode(pem.CERTIFICATE, self._der)

    @property
    def chain_pem(self) -> bytes:
        """The authority's certificate and the chain above it."""
        return b"".join(
            pem.encode(pem.CERTIFICATE, certificates.encode(link)) for link in self.chain
        )

    def key_pem(self) -> SecretValue:
        """The private key; write it only to a file of mode 0600."""
        return SecretValue(encode_private(self._private))

    def request(self) -> str:
        """A certificate request for the same name and key, in PEM."""
        return authority_request(self.certificate, self._private)

    def below(self, chain: Sequence[x509.Certificate]) -> "Authority":
        """The same key with another chain, issuing certificate first."""
        return Authority(chain, self._private, random=self._random)

    def sign(
        self,
        request: SigningRequest,
        usages: Sequence[str],
        lifetime: datetime.timedelta,
        *,
        profile: Profile,
        now: datetime.datetime,
        crl_url: str = "",
    ) -> bytes:
        """Sign a request under a profile; return the PEM chain.

        With `crl_url` the certificate has a CRL distribution point, if the authority may sign CRLs.
        """
        profile.check(request, usages)
        if self.limits is not None:
            self.limits.check(request, usages)
        not_before, not_after = leaf_validity(lifetime, now, self._end)
        certified = profile.certified_usages(usages, request.key_algorithm)
        bits, extended = agreed_usages(tuple(certified))
        template = Template(
            subject=request.certified_subject,
            # Our encoding of the key; the sender's may be unusual.
            spki=request.spki,
            not_before=not_before,
            not_after=not_after,
            key_usages=bits,
            extended_usages=extended,
            dns_names=request.dns_names,
            email_addresses=request.email_addresses,
            ip_addresses=request.ip_addresses,
            uris=request.uris,
            crl_url=crl_url if self._signs_lists else "",
        )
        return self._inspect_and_sign(template, now, lambda body: profile.check(body, usages))

    def sign_for_pod(
        self,
        stub: SigningRequest,
        subject: names.DistinguishedName,
        lifetime: datetime.timedelta,
        *,
        profile: Profile,
        now: datetime.datetime,
        uris: tuple[str, ...] = (),
        crl_url: str = "",
    ) -> bytes:
        """Sign a certificate for the key of a stub, with a subject and URIs that the signer chose.

        The lifetime counts from the start of the validity. Gives the PEM chain.
        """
        usages = profile.usages(())
        profile.refuse_key(stub)
        profile.check(certificates.CertificateContents(subject, uris=uris), usages)
        bits, extended = agreed_usages(tuple(profile.certified_usages(usages, stub.key_algorithm)))
        not_before, not_after = pod_validity(lifetime, now, self._end)
        template = Template(
            subject=subject,
            spki=stub.spki,
            not_before=not_before,
            not_after=not_after,
            key_usages=bits,
            extended_usages=extended,
            uris=uris,
            crl_url=crl_url if self._signs_lists else "",
        )
        return self._inspect_and_sign(template, now, lambda body: profile.check(body, usages))

    def issue(
        self,
        common_name: str,
        usages: Iterable[str],
        *,
        lifetime: datetime.timedelta,
        now: datetime.datetime,
        organizations: Iterable[str] = (),
        dns_names: Iterable[str] = (),
        ip_addresses: Iterable[IPAddress] = (),
    ) -> SignedCertificate:
        """Create a P-256 key and a certificate for it."""
        key = ec.generate_private_key(ec.SECP256R1())
        not_before, not_after = leaf_validity(lifetime, now, self._end)
        asked = tuple(usages)
        self._refuse_other_purposes(asked)
        bits, extended = agreed_usages(asked)
        hosts = tuple(dns_names)
        for host in hosts:
            refuse_bad_host(host, wildcards=True)
        template = Template(
            subject=names.subject(common_name, organizations).permitted(),
            spki=spki(key.public_key()),
            not_before=not_before,
            not_after=not_after,
            key_usages=bits,
            extended_usages=extended,
            dns_names=hosts,
            ip_addresses=tuple(ip_addresses),
        )
        chain = self._inspect_and_sign(template, now, _no_review)
        return SignedCertificate(chain, SecretValue(encode_private(key)))

    def issue_serving(
        self,
        common_name: str,
        *,
        lifetime: datetime.timedelta,
        now: datetime.datetime,
        dns_names: Iterable[str] = (),
        ip_addresses: Iterable[IPAddress] = (),
    ) -> SignedCertificate:
        """Create a key and a certificate for a TLS server."""
        return self.issue(
            common_name,
            (DIGITAL_SIGNATURE, SERVER_AUTH),
            lifetime=lifetime,
            now=now,
            dns_names=dns_names,
            ip_addresses=ip_addresses,
        )

    def issue_client(
        self,
        user: str,
        *,
        lifetime: datetime.timedelta,
        now: datetime.datetime,
        groups: Iterable[str] = (),
    ) -> SignedCertificate:
        """Create a key and a client certificate for a user with groups."""
        return self.issue(
            user,
            (DIGITAL_SIGNATURE, CLIENT_AUTH),
            lifetime=lifetime,
            now=now,
            organizations=groups,
        )

    def certify(
        self, other: x509.Certificate, *, now: datetime.datetime, crl_url: str = ""
    ) -> bytes:
        """A certificate for the name and the key of another authority, in PEM.

        It ends with the earlier of both. Verifiers that trust only this authority accept the
        certificates of the other one by it.
        """
        if not may_certify(self.certificate):
            raise NotPermittedToSign("its path length permits no authority below")
        parts = certificates.read_parts(certificates.encode(other))
        not_before, not_after = authority_validity(other.not_valid_after_utc, now, self._end)
        template = Template(
            subject=certificates.read_name(parts.subject),
            encoded_subject=parts.subject,
            spki=parts.key,
            key_id=subject_key_id(other),
            not_before=not_before,
            not_after=not_after,
            key_usages=key_usage_bits(("cert sign", "crl sign")),
            uris=certificates.uris_of(other),
            crl_url=crl_url if self._signs_lists else "",
            authority=True,
        )
        return self._inspect_and_sign(template, now, _no_review, above=b"")

    def sign_revocation_list(self, revoked: RevokedCertificates, edition: Edition) -> bytes:
        """Sign the complete CRL of this authority; DER."""
        if not self._signs_lists:
            raise NotPermittedToSign("the authority's key usage does not permit revocation lists")
        key_id = self.key_id or key_digest(spki_of(self.certificate))
        body = encode_list_body(
            revoked,
            edition,
            algorithm=self._algorithm,
            issuer=self._issuer,
            authority_key=key_id,
        )
        # As with certificates: the library, which did not write it, parses it before it is signed.
        refuse_unsound_list(
            assemble(body, self._algorithm, b""), revoked, edition, self.certificate, key_id
        )
        return assemble(body, self._algorithm, self._sign(body))

    def _refuse_other_purposes(self, usages: Sequence[str]) -> None:
        if self.purposes is None:
            return
        for usage in usages:
            if not self.purposes.issuperset(extended_usages((usage,))):
                raise NotPermitted(f"the authority may not issue for {usage}")

    def _inspect_and_sign(
        self,
        template: Template,
        now: datetime.datetime,
        review: Callable[[certificates.CertificateContents], None],
        above: bytes | None = None,
    ) -> bytes:
        """Write the body, inspect it with the X.509 library, then sign exactly those bytes.

        `above`: the chain to append; None for that of the authority.
        """
        serial = new_serial(now, self._random)
        body = encode_body(template, serial, self._algorithm, self._issuer, self.key_id)
        # The library only parses certificates with a signature; this one is empty.
        candidate = assemble(body, self._algorithm, b"")
        contents = self._inspector.inspect(candidate, template, serial)
        try:
            review(contents)
        except NotPermitted as refusal:
            raise UnsoundCertificate(f"the certificate to be signed: {refusal}") from None
        signed = assemble(body, self._algorithm, self._sign(body))
        chain = self._intermediates if above is None else above
        return pem.encode(pem.CERTIFICATE, signed) + chain

    def __repr__(self) -> str:
        return f"Authority({certificates.describe(self.certificate)})"

    def __reduce__(self) -> str:
        raise TypeError("an authority is not pickled")


def _no_review(_contents: certificates.CertificateContents) -> None:
    """Accept: certificates for this server are subject to no signer's rules."""
