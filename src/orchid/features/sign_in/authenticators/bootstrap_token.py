"""Bootstrap tokens: `id.secret`, stored in a Secret of the system namespace, for joining nodes.

Start with `BootstrapTokenAuthenticator`. An invalid token (unknown, expired, not for
authentication, a group outside of its range) is treated as unknown: the response gives no hint to
somebody who guesses tokens. A token with `node-name` is bound to one host: its user has the name as
an extra, and the approving controller approves requests for that host only.
"""

import hmac
import re
from collections.abc import Mapping
from datetime import UTC, datetime

from orchid.features.objects.kinds.secret import Secret
from orchid.features.revocation.revocations import Revocations
from orchid.kernel.access.authenticators.audiences import Audiences, shared
from orchid.kernel.base.clock import Clock
from orchid.kernel.engine.cache.feed import Feed
from orchid.kernel.engine.interfaces import Authenticated
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.rules.names import subdomain_errors
from orchid.kernel.wire.user import UserInfo

GROUP = "system:bootstrappers"
_TOKEN = re.compile(r"([a-z0-9]{6})\.([a-z0-9]{16})", re.ASCII)
_EXTRA_GROUP = re.compile(r"system:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9]", re.ASCII)
_RFC3339 = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?(Z|[+-]\d{2}:\d{2})", re.ASCII)


class BootstrapTokenAuthenticator:
    """Authenticate tokens by the current Secrets."""

    def __init__(
        self,
        feed: Feed,
        clock: Clock,
        api_audiences: Audiences,
        naming: Naming,
        revocations: Revocations | None = None,
    ) -> None:
        self._feed = feed
        self._revocations = revocations
        self._secrets = feed.of(Secret)
        self._clock = clock
        self._audiences = api_audiences
        self._namespace = naming.system_namespace
        self._type = naming.bootstrap_token_type
        self._bound_node_name = naming.bound_node_name

    async def authenticate_token(self, token: str, audiences: Audiences) -> Authenticated | None:
        form = _TOKEN.fullmatch(token)
        if form is None:
            return None
        good = shared(self._audiences, audiences)
        if not good:
            return None
        await self._feed.fresh_for_request()
        data = self._data(*form.groups())
        groups = extra_groups(data.get("auth-extra-groups", b"")) if data else None
        if data is None or groups is None:
            return None
        bound = data.get("node-name", b"").decode("ascii", "replace")
        if bound and subdomain_errors(bound):
            return None
        extra: dict[str, tuple[str, ...]] = {}
        if bound:
            extra[self._bound_node_name] = (bound,)
        username = f"system:bootstrap:{form[1]}"
        if self._revocations is not None:
            self._revocations.refuse_user(username, None)
        return Authenticated(UserInfo(username, groups=groups, extra=extra), good)

    def _data(self, token_id: str, secret: str) -> Mapping[str, bytes] | None:
        """The data of the Secret of a valid token, or None."""
        entry = self._secrets.get(self._namespace, f"bootstrap-token-{token_id}")
        if entry is None or entry.meta.deletion_timestamp is not None:
            return None
        held = entry.object
        data = held.data
        if held.type != self._type:
            return None
        if not hmac.compare_digest(data.get("token-secret", b""), secret.encode()):
            return None
        if data.get("token-id", b"") != token_id.encode():
            return None
        if data.get("usage-bootstrap-authentication", b"") != b"true":
            return None
        if is_expired(data.get("expiration", b""), self._clock.now()):
            return None
        return data


def is_expired(expiration: bytes, now: datetime) -> bool:
    """Whether the token has expired; True for a malformed expiration."""
    if not expiration:
        return False
    text = expiration.decode("ascii", "replace")
    if not _RFC3339.fullmatch(text):
        return True
    try:
        return datetime.fromisoformat(text).astimezone(UTC) <= now
    except (ValueError, OverflowError):
        return True


def extra_groups(listed: bytes) -> tuple[str, ...] | None:
    """The groups, sorted; None if one is not allowed, which makes the token invalid."""
    groups = {GROUP}
    for name in listed.decode("utf-8", "replace").split(",") if listed else ():
        if not _EXTRA_GROUP.fullmatch(name):
            return None
        groups.add(name)
    return tuple(sorted(groups))
