"""AccountTokens: the authenticator of the tokens of service accounts, with the keys in use."""

import logging

from orchid.features.accounts.authenticators.secret_token import SecretTokens
from orchid.features.accounts.authenticators.service_account_token import (
    ServiceAccountTokenAuthenticator,
    account_verifier,
    issuer_keys,
)
from orchid.features.accounts.secret_token_uses import SecretTokenUses
from orchid.features.revocation.revocations import Revocations
from orchid.features.token_keys.followed_keys import FollowedKeys
from orchid.features.token_keys.token_keys import StoredKeys
from orchid.kernel.context import Context
from orchid.kernel.credentials.tokens import KeySet

log = logging.getLogger(__name__)


class AccountTokens:
    """Verifies with the token keys, and with others as soon as they are used."""

    def __init__(self, context: Context) -> None:
        self._settings = settings = context.settings
        naming, revocations = context.naming, context.port(Revocations)
        followed = context.port(FollowedKeys)
        keys = followed.keys
        self.verifier = account_verifier(settings.issuers, KeySet(()), naming)
        self.authenticator = ServiceAccountTokenAuthenticator(
            self.verifier,
            context.feed,
            context.clock,
            api_audiences=settings.api_audiences,
            naming=naming,
            legacy=SecretTokens(
                context.feed,
                context.clock,
                naming,
                lambda namespace, name, day: context.port(SecretTokenUses).used(
                    namespace, name, day
                ),
                revocations,
            ),
            revocations=revocations,
            keys=keys if isinstance(keys, StoredKeys) else None,
        )
        self._use(keys.verifying)
        followed.changed.insert(0, self._use)  # before it is reported that they are in use

    def _use(self, keys: KeySet) -> None:
        """Verify tokens with these keys."""
        level = logging.INFO if self.verifier.kids else logging.DEBUG  # at the start, no news
        issuers = issuer_keys(self._settings.issuers, keys, self._settings.naming)
        self.verifier.replace_issuers(issuers)
        log.log(level, "tokens.keys", extra={"keys": len(keys.keys)})
