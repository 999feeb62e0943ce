"""What is in certificates that were issued: names that exist, and nothing beyond the policy.

The policy that approved a request is named in its condition. Its patterns are matched here once
more, in another way: a URI by the host that a client would connect to.
"""

import fnmatch
import unicodedata
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from cryptography import x509

from tests.adversary.invariants.violation import Violation


def alternative_names(
    certificate: x509.Certificate | x509.CertificateSigningRequest,
) -> x509.SubjectAlternativeName | None:
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return None
    return found.value


def name_errors(certificate: x509.Certificate) -> Iterator[Violation]:
    """DNS names whose labels are no internationalised names, though they look like it."""
    names = alternative_names(certificate)
    for name in names.get_values_for_type(x509.DNSName) if names else ():
        for label in name.lower().split("."):
            if label.startswith("xn--") and not _is_idna(label):
                yield Violation("invalid name", f"{name} was issued; {label} decodes to nothing")


def _is_idna(label: str) -> bool:
    try:
        text = label[4:].encode("ascii").decode("punycode")
    except UnicodeError:
        return False
    is_shown = all(unicodedata.category(sign)[0] in "LMN" or sign == "-" for sign in text)
    return is_shown and bool(text) and not text.isascii()


def policy_errors(certificate: x509.Certificate, policy: dict[str, Any]) -> Iterator[Violation]:
    """Names of the certificate that the policy does not allow."""
    allows, name = policy["spec"].get("allows", {}), policy["metadata"]["name"]
    names = alternative_names(certificate)
    if names is None:
        return
    for dns in names.get_values_for_type(x509.DNSName):
        if not any(fnmatch.fnmatchcase(dns.lower(), one) for one in allows.get("dnsNames", ())):
            yield Violation("beyond the policy", f"{name} approved the DNS name {dns}")
    for uri in names.get_values_for_type(x509.UniformResourceIdentifier):
        if not any(_same_place(uri, one) for one in allows.get("uris", ())):
            yield Violation("beyond the policy", f"{name} approved the URI {uri}")


def _same_place(uri: str, pattern: str) -> bool:
    """Whether scheme and host of a URI fit those of a pattern, as a client reads them."""
    if pattern == "*":
        return True
    scheme, _, rest = pattern.partition("://")
    host, parts = rest.partition("/")[0], urlsplit(uri)
    return parts.scheme == scheme and fnmatch.fnmatchcase(parts.netloc, host)
