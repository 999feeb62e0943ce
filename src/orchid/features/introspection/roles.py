"""Default roles: who may call the OAuth endpoints, which authenticate their callers themselves."""

from orchid.kernel.wire.default_roles import OAUTH, DefaultRole, public, urls
from orchid.kernel.wire.naming import Naming


def roles(_: Naming) -> tuple[DefaultRole, ...]:
    return (
        public(
            OAUTH,
            urls("/.well-known/oauth-authorization-server"),
            urls("/oauth2/introspect", "/oauth2/revoke", verbs=("post",)),
        ),
    )
