"""Signing profiles: the content and lifetime that each signer permits.

`client`, `node_client`, `node_serving` and `legacy` make the profiles of platform signers; they
take the names with a meaning here (signer, groups, user prefix). `own_authority` makes that of a
custom authority from lists, `svids` that of one with a SPIFFE trust domain. `Profile.check` is a
checklist: first the signer's own rules, for platform signers in the order and with the messages of
Kubernetes, then rules for every signer: no weak keys, no control characters or overlong names, no
malformed addresses, no malformed or wildcard host names, and no reserved group in any spelling.

The same check runs twice, on the request and on the bytes before they are signed (authority.py).
"""

import ipaddress
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import timedelta
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from orchid.kernel.credentials.authorities.authority_keys import ML_DSA_65
from orchid.kernel.credentials.authorities.issuer_limits import IssuerLimits
from orchid.kernel.credentials.refusals import NotPermitted
from orchid.kernel.credentials.spiffe_ids import (
    account_id,
    claims_id,
    is_account_id,
    is_workload_id,
)
from orchid.kernel.credentials.x509.names import (
    SUBJECT_PARTS,
    USER_UID,
    Named,
    has_control_characters,
    reserved_among,
)
from orchid.kernel.credentials.x509.signing_request import SigningRequest
from orchid.kernel.credentials.x509.usages import (
    CLIENT_AUTH,
    DIGITAL_SIGNATURE,
    KEY_ENCIPHERMENT,
    SERVER_AUTH,
    fitting_usages,
    refuse_unknown,
)

MINIMUM_LIFETIME = timedelta(minutes=10)

# Types of alternative names: the name in settings, and the name in messages.
ALTERNATIVE_NAMES = {"dns": "DNS", "ip": "IP", "uri": "URI", "email": "Email"}

# X.509-SVID, section 4.3 and appendix A: both purposes, and no other use of the key.
SVID_USAGES = (DIGITAL_SIGNATURE, SERVER_AUTH, CLIENT_AUTH)

_MAX_DNS_NAME = 253
# RFC 5280 says 64 for most, which the names of nodes and accounts exceed.
_MAX_SUBJECT_VALUE = 1024
_MAX_EMAIL = 254  # RFC 5321 section 4.5.3.1.3, without the brackets
_MAX_URI = 2048
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")
_HOST = re.compile(r"[A-Za-z0-9._-]+")
_DNS_LABEL = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")

Rules = Callable[[Named, Sequence[str]], None]


class Profile(msgspec.Struct, frozen=True):
    """The rules of one signer."""

    signer_name: str
    rules: Rules
    reserved_groups: tuple[str, ...] = ()
    wildcards: bool = False
    default_usages: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()  # permitted algorithms; empty for all that TLS clients support
    max_duration: timedelta = timedelta.max
    default_duration: timedelta = timedelta.max
    fits_usages: bool = False  # whether usages that the key does not support are omitted
    limits: IssuerLimits | None = None  # of the certificates above
    trust_domain: str = ""  # of X.509-SVIDs: each requester gets its own SPIFFE ID only

    def within(self, limits: IssuerLimits | None) -> "Profile":
        """The same rules with the constraints of an authority's chain."""
        if limits is None:
            return self
        usual = tuple(usage for usage in self.default_usages if limits.permits_usage(usage))
        return replace(self, limits=limits, default_usages=usual)

    def check(self, request: Named, usages: Sequence[str]) -> None:
        """Return if the signer may sign this; raise NotPermitted with the first reason."""
        self.rules(request, usages)
        refuse_unknown(usages)
        self._refuse_reserved(request)
        if isinstance(request, SigningRequest):
            # The key in the certificate is compared with this one, byte for byte (authority.py).
            self.refuse_key(request)
        _refuse_odd_names(request)
        for name in request.dns_names:
            refuse_bad_host(name, wildcards=self.wildcards)
        for address in request.email_addresses:
            _refuse_bad_email(address)
        for uri in request.uris:
            _refuse_bad_uri(uri)
        if self.limits is not None:
            self.limits.check(request, usages)

    def usages(self, requested: Sequence[str]) -> Sequence[str]:
        """Usages of a certificate: the requested ones, else the defaults of this signer."""
        return requested or self.default_usages

    def certified_usages(self, usages: Sequence[str], key: str) -> Sequence[str]:
        """Usages that a certificate for a key of this algorithm will have."""
        return fitting_usages(usages, key) if self.fits_usages else usages

    def lifetime(
        self, requested_seconds: int | None, maximum: timedelta = timedelta.max
    ) -> timedelta:
        """Lifetime of a certificate: the requested one, at least ten minutes, at most the
        maximum.
        """
        longest = min(maximum, self.max_duration)
        if requested_seconds is None:
            return min(self.default_duration, longest)
        if timedelta(seconds=requested_seconds) > longest:
            return longest
        return max(timedelta(seconds=requested_seconds), MINIMUM_LIFETIME)

    def refuse_key(self, request: SigningRequest) -> None:
        """Raise NotPermitted if the signer does not certify keys of this algorithm."""
        if request.weakness is not None:
            raise NotPermitted(request.weakness)
        algorithm = request.key_algorithm
        if self.keys and algorithm not in self.keys:
            allowed = ", ".join(self.keys)
            raise NotPermitted(f"{algorithm} keys are not allowed; allowed are {allowed}")
        if not self.keys and algorithm == ML_DSA_65:
            raise NotPermitted(f"{algorithm} keys are not allowed")

    def _refuse_reserved(self, request: Named) -> None:
        group = reserved_among(request.subject.organizations, self.reserved_groups)
        if group is not None:
            raise NotPermitted(
                f"use of {self.signer_name} signer with {group} group is not allowed"
            )


RENEWAL = "selfnodeclient"  # by the certificate of the node itself


class RecognizedRequest(msgspec.Struct, frozen=True):
    """A recognised request of a node: the access to check, and the message of the approval."""

    subresource: str
    message: str


def client(signer_name: str, reserved_groups: Iterable[str]) -> Profile:
    """Client certificates for anyone; the approver checks the subject."""
    groups = tuple(reserved_groups)
    return Profile(signer_name, _client_rules, groups, default_usages=_default_usages(CLIENT_AUTH))


def node_client(signer_name: str, *, nodes_group: str, node_user_prefix: str) -> Profile:
    """Client certificates for node agents."""

    def rules(request: Named, usages: Sequence[str]) -> None:
        _require_nodes_group(request, nodes_group)
        _refuse_alternative_names(request, "DNS", "Email", "IP", "URI")
        _require_node_user(request, node_user_prefix)
        _require_usages(usages, CLIENT_AUTH)

    return Profile(signer_name, rules, default_usages=_default_usages(CLIENT_AUTH))


def node_serving(signer_name: str, *, nodes_group: str, node_user_prefix: str) -> Profile:
    """Serving certificates for node agents."""

    def rules(request: Named, usages: Sequence[str]) -> None:
        _require_nodes_group(request, nodes_group)
        if not request.dns_names and not request.ip_addresses:
            raise NotPermitted("DNS or IP subjectAltName is required")
        _refuse_alternative_names(request, "Email", "URI")
        _require_usages(usages, SERVER_AUTH)
        _require_node_user(request, node_user_prefix)

    return Profile(signer_name, rules, default_usages=_default_usages(SERVER_AUTH))


def legacy(signer_name: str, reserved_groups: Iterable[str]) -> Profile:
    """Certificates without a stated purpose, for requests older than signer names."""
    groups = tuple(reserved_groups)
    return Profile(signer_name, _no_rules, groups, wildcards=True, default_usages=_default_usages())


def own_authority(
    signer_name: str,
    *,
    usages: Sequence[str],
    names: Iterable[str],
    keys: Iterable[str],
    max_duration: timedelta,
    default_duration: timedelta,
    subject: Collection[str] = (),
    reserved_groups: Iterable[str] = (),
    wildcards: bool = False,
) -> Profile:
    """Certificates of a custom authority: only what these lists allow.

    `names` are from `ALTERNATIVE_NAMES`, `subject` from `SUBJECT_PARTS`; empty allows all parts of
    a subject. A request without usages gets all permitted ones. Usages that the key does not
    support are omitted; platform signers, like Kubernetes, sign them as requested.
    """
    refuse_unknown(usages)
    permitted = tuple(usages)
    kinds = frozenset(names)
    forbidden = tuple(name for kind, name in ALTERNATIVE_NAMES.items() if kind not in kinds)

    def rules(request: Named, asked: Sequence[str]) -> None:
        for usage in asked:
            if usage not in permitted:
                raise NotPermitted(f"usage is not allowed: {usage}")
        _refuse_alternative_names(request, *forbidden)
        for part, oid in SUBJECT_PARTS.items():
            if subject and part not in subject and request.subject.values(oid):
                raise NotPermitted(f"the subject may not have {part}")
        _refuse_nameless(request)
        if SERVER_AUTH in asked:
            _refuse_hidden_host(request)

    return Profile(
        signer_name,
        rules,
        tuple(reserved_groups),
        wildcards=wildcards,
        default_usages=permitted,
        keys=tuple(keys),
        max_duration=max_duration,
        default_duration=default_duration,
        fits_usages=True,
    )


def pods(
    signer_name: str,
    *,
    account_prefix: str,
    groups_of: Callable[[str], Collection[str]],
    usages: Sequence[str] = (),
    keys: Iterable[str] = (),
    max_duration: timedelta = timedelta.max,
) -> Profile:
    """Certificates of Pods, by which they are the user that their account is.

    `groups_of` gives the groups of accounts in a namespace. Without usages, those of a client.
    """
    permitted = tuple(usages) or _default_usages(CLIENT_AUTH)

    def rules(request: Named, asked: Sequence[str]) -> None:
        for usage in asked:
            if usage not in permitted:
                raise NotPermitted(f"usage is not allowed: {usage}")
        _refuse_alternative_names(request, *ALTERNATIVE_NAMES.values())
        subject = request.subject
        named = subject.common_name.removeprefix(account_prefix)
        namespace, _, account = named.partition(":")
        if named == subject.common_name or not namespace or not account:
            raise NotPermitted("the common name is not that of a service account")
        if set(subject.organizations) != set(groups_of(namespace)):
            raise NotPermitted("the organizations are not the groups of the service account")
        if len(subject.values(USER_UID)) != 1:
            raise NotPermitted("the subject does not have the uid of the service account")

    return Profile(
        signer_name,
        rules,
        default_usages=permitted,
        keys=tuple(keys),
        max_duration=max_duration,
        fits_usages=True,
    )


def svids(
    signer_name: str,
    *,
    trust_domain: str,
    keys: Iterable[str],
    max_duration: timedelta,
    default_duration: timedelta,
) -> Profile:
    """X.509-SVIDs of service accounts: one URI, the SPIFFE ID, and nothing else."""

    def rules(request: Named, asked: Sequence[str]) -> None:
        if set(asked) != set(SVID_USAGES):
            raise NotPermitted(f"the usages of an X.509-SVID are {', '.join(SVID_USAGES)}")
        _refuse_alternative_names(request, "DNS", "Email", "IP")
        if request.subject.attributes:
            raise NotPermitted("the subject of an X.509-SVID must be empty")
        if len(request.uris) != 1 or not is_account_id(request.uris[0], trust_domain):
            form = account_id(trust_domain, "NAMESPACE", "NAME")
            raise NotPermitted(f"an X.509-SVID has one URI, of the form {form}")

    return Profile(
        signer_name,
        rules,
        default_usages=SVID_USAGES,
        keys=tuple(keys),
        max_duration=max_duration,
        default_duration=default_duration,
        trust_domain=trust_domain,
    )


def recognise_node_client(
    profile: Profile,
    request: SigningRequest,
    usages: Sequence[str],
    *,
    signer_name: str,
    username: str,
    agent: str,
) -> Iterator[RecognizedRequest]:
    """Yield the permissions that allow an automatic approval, in the order to try them.

    `profile` is the node client profile and `agent` the name of the node's agent in messages.
    """
    if signer_name != profile.signer_name:
        return
    try:
        profile.check(request, profile.usages(usages))
    except NotPermitted:
        return
    if username == request.subject.common_name:
        yield RecognizedRequest(
            RENEWAL,
            f"Auto approving self {agent} client certificate after SubjectAccessReview.",
        )
    yield RecognizedRequest(
        "nodeclient", f"Auto approving {agent} client certificate after SubjectAccessReview."
    )


def _default_usages(*purposes: str) -> tuple[str, ...]:
    """The usages that a TLS certificate normally needs for some purposes."""
    return (DIGITAL_SIGNATURE, KEY_ENCIPHERMENT, *purposes)


def _no_rules(_request: Named, _usages: Sequence[str]) -> None:
    """No rules beyond the common checks."""


def _client_rules(_request: Named, usages: Sequence[str]) -> None:
    for usage in usages:
        if usage not in (DIGITAL_SIGNATURE, KEY_ENCIPHERMENT, CLIENT_AUTH):
            raise NotPermitted(f"invalid usage for client certificate: {usage}")
    if CLIENT_AUTH not in usages:
        raise NotPermitted(f"missing required usage for client certificate: {CLIENT_AUTH}")


def _require_nodes_group(request: Named, group: str) -> None:
    if request.subject.organizations != (group,):
        raise NotPermitted(f"subject organization is not {group}")


def _require_node_user(request: Named, prefix: str) -> None:
    subject = request.subject
    if not subject.common_name.startswith(prefix):
        raise NotPermitted(f"subject common name does not begin with {prefix}")
    # Stricter than Kubernetes: nothing else in the subject can be mistaken for a host.
    if len(subject.attributes) != len(subject.organizations) + 1:
        raise NotPermitted("the subject may have one common name and organizations only")


def _refuse_alternative_names(request: Named, *kinds: str) -> None:
    present: dict[str, Sequence[object]] = {
        "DNS": request.dns_names,
        "Email": request.email_addresses,
        "IP": request.ip_addresses,
        "URI": request.uris,
    }
    for kind in kinds:
        if present[kind]:
            raise NotPermitted(f"{kind} subjectAltNames are not allowed")


def _refuse_nameless(request: Named) -> None:
    named = (request.dns_names, request.ip_addresses, request.email_addresses, request.uris)
    if not any(named) and not any(each.value for each in request.subject.attributes):
        raise NotPermitted("a certificate needs a subject or a subjectAltName")


def _refuse_hidden_host(request: Named) -> None:
    """Old clients use the common name as the host, so it must be an alternative name."""
    name = request.subject.common_name
    hosts = {host.lower() for host in request.dns_names}
    hosts.update(str(address) for address in request.ip_addresses)
    if ("." in name or ":" in name) and " " not in name and name.lower() not in hosts:
        raise NotPermitted("the common name is not among the subjectAltNames")


def _require_usages(usages: Sequence[str], purpose: str) -> None:
    full = {DIGITAL_SIGNATURE, KEY_ENCIPHERMENT, purpose}
    # Keys that cannot encipher (elliptic curves) omit that usage.
    if set(usages) not in (full, full - {KEY_ENCIPHERMENT}):
        raise NotPermitted(f"usages did not match [{' '.join(sorted(full))}]")


def _refuse_odd_names(request: Named) -> None:
    for attribute in request.subject.attributes:
        if attribute.value is None:
            continue
        if len(attribute.value) > _MAX_SUBJECT_VALUE:
            raise NotPermitted(
                f"the subject has a value of more than {_MAX_SUBJECT_VALUE} characters"
            )
        if has_control_characters(attribute.value):
            raise NotPermitted("the subject contains control characters")
    for name in (*request.dns_names, *request.email_addresses, *request.uris):
        if not name or has_control_characters(name):
            raise NotPermitted("a subjectAltName is empty or contains control characters")


def refuse_bad_host(name: str, *, wildcards: bool) -> None:
    """Refuse an invalid DNS name: an address, a wildcard, bad characters, bad punycode."""
    host = name.removeprefix("*.") if wildcards else name
    labels = host.split(".")
    good = len(name) <= _MAX_DNS_NAME and all(_DNS_LABEL.fullmatch(label) for label in labels)
    if not good or _is_address(host):
        raise NotPermitted("a DNS subjectAltName is not a host name")
    if any(label[2:4] == "--" and not _is_a_label(label) for label in labels):
        raise NotPermitted("a DNS subjectAltName is not a valid internationalized name")


def _is_a_label(label: str) -> bool:
    # Half a megabyte of tables, and most names are ASCII.
    from orchid.kernel.credentials.a_labels import is_a_label  # noqa: PLC0415 -- see above

    return is_a_label(label)


def _refuse_bad_email(address: str) -> None:
    user, _, host = address.rpartition("@")
    if not user or "@" in user or len(address) > _MAX_EMAIL:
        raise NotPermitted("an Email subjectAltName is not a mailbox")
    refuse_bad_host(host, wildcards=False)


def _refuse_bad_uri(uri: str) -> None:
    """Refuse a URI without a host or resource: relative ones, scripts, bad hosts and ports."""
    if len(uri) > _MAX_URI or not _SCHEME.match(uri) or not _names_resource(uri):
        raise NotPermitted("a URI subjectAltName is not an absolute URI with a host")
    if claims_id(uri) and not is_workload_id(uri):
        raise NotPermitted("a URI subjectAltName is not a SPIFFE ID")


def _names_resource(uri: str) -> bool:
    """Whether a URI has a host that no reader takes for another, or is a URN."""
    try:
        parts = urlsplit(uri)
        host, good_port = parts.hostname or "", parts.port != 0
    except ValueError:
        return False
    is_urn = parts.scheme == "urn" and bool(parts.path)
    return is_urn or (good_port and (_is_address(host) or _HOST.fullmatch(host) is not None))


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
