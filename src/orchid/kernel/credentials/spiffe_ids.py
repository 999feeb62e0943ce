"""SPIFFE IDs (SPIFFE-ID, section 2): of a trust domain, and of the service accounts in it.

The ID of an account is computed: `spiffe://DOMAIN/ns/NAMESPACE/sa/NAME`. Authorities with a trust
domain issue no other IDs; what others issue as an ID has the form of one.
"""

import re
from typing import Final

_LABEL: Final = r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?"
_SCHEME: Final = "spiffe:"
_PART: Final = r"(?!\.\.?(?:/|$))[A-Za-z0-9._-]+"
_is_workload_id = re.compile(rf"spiffe://[a-z0-9._-]+(?:/{_PART})+").fullmatch
_is_account_path = re.compile(rf"/ns/{_LABEL}/sa/{_LABEL}(?:\.{_LABEL})*").fullmatch


def domain_id(trust_domain: str) -> str:
    """The ID of a trust domain, for the certificates of its authorities."""
    return f"spiffe://{trust_domain}"


def claims_id(uri: str) -> bool:
    """Whether a URI has the scheme of SPIFFE IDs."""
    return uri.lower().startswith(_SCHEME)


def is_workload_id(uri: str) -> bool:
    """Whether a URI is the ID of a workload: a trust domain and a path, without a query."""
    return _is_workload_id(uri) is not None


def account_id(trust_domain: str, namespace: str, name: str) -> str:
    """The ID of a service account."""
    return f"{domain_id(trust_domain)}/ns/{namespace}/sa/{name}"


def is_account_id(uri: str, trust_domain: str) -> bool:
    """Whether a URI is the ID of a service account in a trust domain."""
    own = domain_id(trust_domain)
    return uri.startswith(f"{own}/") and _is_account_path(uri[len(own) :]) is not None
