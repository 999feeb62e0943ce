"""Protection of every page: security headers, `Host`, and forged requests.

The policy allows one script and one style sheet of our own, and no HTML that a script makes of
text (Trusted Types). So markup in a name that a template forgot to escape has no effect.
"""

from collections.abc import Collection, Mapping
from typing import Final

import msgspec

from orchid.features.console.web.messages import WebResponse

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
ALWAYS_TLS: Final = ("Strict-Transport-Security", "max-age=31536000")


def protected(response: WebResponse, *extra: tuple[str, str]) -> WebResponse:
    """A response with the security headers; it is not stored unless it says so."""
    own = response.headers
    stored = () if any(name == "Cache-Control" for name, _ in own) else (NEVER_STORED,)
    return msgspec.structs.replace(response, headers=(*HEADERS, *extra, *stored, *own))


def is_rebound(headers: Mapping[str, str], hosts: Collection[str]) -> bool:
    """Whether the request was sent to a name that is not ours, as after DNS rebinding."""
    return headers.get("host", "").lower() not in hosts


def is_forged(headers: Mapping[str, str], origins: Collection[str]) -> bool:
    """Whether a write was not sent by a page of ours.

    SameSite is not sufficient: another port of this host is the same site.
    """
    site, origin = headers.get("sec-fetch-site", ""), headers.get("origin", "")
    return site != "same-origin" or origin.lower() not in origins


def is_foreign(headers: Mapping[str, str]) -> bool:
    """Whether a page of another site caused the request; other programs do not say."""
    return headers.get("sec-fetch-site") in ("cross-site", "same-site")
