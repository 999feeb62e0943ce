"""Protection against cross-site requests with the client certificate of a browser.

A browser presents its client certificate for every page, so that any site could create and delete
objects as its user, or read a watch over a WebSocket (cross-site request forgery). Browsers send
the origin of a request (`Sec-Fetch-Site`, `Origin`); kubectl and other programs send neither header
and are not affected. Tokens are not affected either: a page would have to know them.
"""

from typing import Final

from orchid.kernel.engine.interfaces import Presented
from orchid.kernel.wire.errors import ErrorSubject, Forbidden

_SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_OWN_SITES: Final = frozenset({"same-origin", "none"})  # none: typed by the user
_REFUSAL: Final = (
    "a page of another site may not act by the certificate of a browser; "
    "send a token, or no Origin and Sec-Fetch-Site headers"
)


def refuse_cross_site(presented: Presented) -> None:
    """Raise Forbidden for a write or a WebSocket from a page of another origin."""
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
