"""SPIFFE IDs (SPIFFE-ID, section 2): of a trust domain, and of the service accounts in it.

The ID of an account is computed: `spiffe://DOMAIN/ns/NAMESPACE/sa/NAME`. There are no other IDs.
"""

import re
from typing import Final

_LABEL: Final = r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?"
_is_account_path = re.compile(rf"/ns/{_LABEL}/sa/{_LABEL}(?:\.{_LABEL})*").fullmatch


def domain_id(trust_domain: str) -> str:
    """The ID of a trust domain, for the certificates of its authorities."""
    return f"spiffe://{trust_domain}"


def account_id(trust_domain: str, namespace: str, name: str) -> str:
    """The ID of a service account."""
    return f"{domain_id(trust_domain)}/ns/{namespace}/sa/{name}"


def is_account_id(uri: str, trust_domain: str) -> bool:
    """Whether a URI is the ID of a service account in a trust domain."""
    own = domain_id(trust_domain)
    return uri.startswith(f"{own}/") and _is_account_path(uri[len(own) :]) is not None
