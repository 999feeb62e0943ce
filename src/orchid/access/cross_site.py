"""Requests that a page of another site makes a browser send, with the certificate of its user.

A browser shows its client certificate whichever page asks, so that a page anywhere could have
objects created and deleted in its user's name, or read a watch over a WebSocket (cross-site request
forgery). Browsers say where a request comes from (`Sec-Fetch-Site`, `Origin`); kubectl and other
programs send neither header and are not concerned. Tokens are no such credential: a page has to
know them.
"""

from typing import Final

from orchid.engine.interfaces import Presented
from orchid.wire.errors import ErrorSubject, Forbidden

_SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_OWN_SITES: Final = frozenset({"same-origin", "none"})  # none: typed by the user
_REFUSAL: Final = (
    "a page of another site may not act by the certificate of a browser; "
    "send a token, or no Origin and Sec-Fetch-Site headers"
)


def refuse_cross_site(presented: Presented) -> None:
    """Raise Forbidden for a write or a WebSocket that a page of another origin began."""
    headers = presented.headers
    if presented.method in _SAFE_METHODS and "upgrade" not in headers:
        return
    if "origin" not in headers and "sec-fetch-site" not in headers:
        return
    own = f"https://{headers.get('host', '')}".lower().removesuffix(":443")
    origins = (origin.lower().removesuffix(":443") for origin in presented.all("origin"))
    sites = (site.lower() for site in presented.all("sec-fetch-site"))
    if any(origin != own for origin in origins) or any(site not in _OWN_SITES for site in sites):
        raise Forbidden(ErrorSubject("", ""), _REFUSAL)
