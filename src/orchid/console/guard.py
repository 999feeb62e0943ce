"""Protection of every page: security headers, `Host`, and forged requests.

The policy allows one script and one style sheet of our own, and no HTML that a script makes of
text (Trusted Types). So markup in a name that a template forgot to escape has no effect.
"""

from collections.abc import Collection, Mapping
from typing import Final

POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
HEADERS: Final = (
    ("Content-Security-Policy", POLICY),
    ("X-Content-Type-Options", "nosniff"),
    # Not no-referrer: it would turn the Origin of our own forms into null.
    ("Referrer-Policy", "same-origin"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
)
NEVER_STORED: Final = ("Cache-Control", "no-store")


def is_rebound(headers: Mapping[str, str], hosts: Collection[str]) -> bool:
    """Whether the request was sent to a name that is not ours, as after DNS rebinding."""
    return headers.get("host", "").lower() not in hosts


def is_forged(headers: Mapping[str, str], origins: Collection[str]) -> bool:
    """Whether a write was not sent by a page of ours.

    SameSite is not sufficient: another port of this host is the same site.
    """
    site, origin = headers.get("sec-fetch-site", ""), headers.get("origin", "")
    return site != "same-origin" or origin.lower() not in origins
