"""The message of a 403: `forbidden` builds it for all callers.

`joined` joins the reasons of several authorizers. The message has the user and the request, and is
the same whether the object exists or not.
"""

from collections.abc import Iterable

from orchid.kernel.engine.request import Target
from orchid.kernel.wire.errors import ErrorSubject, Forbidden
from orchid.kernel.wire.text import quote
from orchid.kernel.wire.user import UserInfo

# Escaped, so that a browser that sniffs the content finds no markup in it.
_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


def forbidden(user: UserInfo, target: Target, reason: str = "") -> Forbidden:
    """The 403 for a request that no authorizer allowed, with their reason if there is one."""
    text = sentence(user, target).translate(_ESCAPES)
    if reason:
        text = f"{text}: {reason}"
    if not target.is_resource:
        return Forbidden(ErrorSubject("", ""), text)
    return Forbidden(ErrorSubject(target.group, target.resource, target.name), text)


def sentence(user: UserInfo, target: Target) -> str:
    who = f"User {quote(user.username)} cannot {target.verb}"
    if not target.is_resource:
        return f"{who} path {quote(target.path)}"
    what = f"resource {quote(target.full_resource)} in API group {quote(target.group)}"
    if target.namespace:
        return f"{who} {what} in the namespace {quote(target.namespace)}"
    return f"{who} {what} at the cluster scope"


def joined(texts: Iterable[str]) -> str:
    """Several problems as one text: a single one plain, several in brackets, without duplicates."""
    distinct = list(dict.fromkeys(texts))
    if len(distinct) > 1:
        return f"[{', '.join(distinct)}]"
    return distinct[0] if distinct else ""
