"""Default roles: who may exchange tokens, and write the policies for it."""

from orchid.kernel.wire.default_roles import EDIT, OAUTH, DefaultRole, public, urls
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.policy_rules import READ, WRITE, rule


def roles(naming: Naming) -> tuple[DefaultRole, ...]:
    return (
        public(OAUTH, urls("/oauth2/token", verbs=("post",))),
        DefaultRole(
            EDIT,
            (
                rule((*READ, *WRITE), naming.identity, ("tokenexchangepolicies",)),
                rule(("create",), naming.identity, ("tokenexchangereviews",)),
            ),
        ),
    )
