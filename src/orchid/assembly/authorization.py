"""The configured authorizers, from the file (--authorization-config) or from flags.

`Authorization` has the one authorizer that everybody asks. `follow` looks at the file every few
seconds: a valid new file takes effect with the next request, an invalid one is logged and changes
nothing.
"""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from orchid.access.authorizers.always_allow import AlwaysAllow
from orchid.access.authorizers.authority_secrets import AuthoritySecrets
from orchid.access.authorizers.conditions import Conditions
from orchid.access.authorizers.configuration import (
    WEBHOOK,
    AuthorizerSettings,
    InvalidAuthorization,
    read_configuration,
    usual_name,
)
from orchid.access.authorizers.metrics import AuthorizationMetrics
from orchid.access.authorizers.node import NodeAuthorizer
from orchid.access.authorizers.rbac import RBAC
from orchid.access.authorizers.union import ListingAuthorizer, Member, Union
from orchid.access.authorizers.webhook import Webhook, WebhookSettings
from orchid.access.json_endpoint import JsonEndpoint
from orchid.access.signer_authorities import SignerAuthorities
from orchid.clock import Clock
from orchid.controllers.running import CONTROLLERS
from orchid.credentials.files import read_bounded
from orchid.credentials.refusals import Refusal
from orchid.engine.cache.feed import Feed
from orchid.expressions.cel import Compiler
from orchid.outbound.remote import read_kubeconfig
from orchid.settings.checking import Settings
from orchid.settings.errors import BadSettings
from orchid.settings.given import Given
from orchid.wire.naming import Naming

log = logging.getLogger(__name__)

LOOK_EVERY = 5.0  # seconds
FLAGS = (
    "authorization_mode",
    "authorization_webhook_config_file",
    "authorization_webhook_version",
    "authorization_webhook_cache_authorized_ttl",
    "authorization_webhook_cache_unauthorized_ttl",
)

ROLES = "RBAC"

Wanted = tuple[AuthorizerSettings, ...]


class Authorization:
    def __init__(
        self,
        settings: Settings,
        feed: Feed,
        rbac: RBAC,
        authorities: SignerAuthorities,
        clock: Clock,
    ) -> None:
        self._settings, self._clock = settings, clock
        self._compiler = Compiler()
        self._secrets = AuthoritySecrets(feed, authorities, _readers(settings.names))
        self._lasting: dict[str, Callable[[], ListingAuthorizer]] = {
            ROLES: lambda: rbac,
            "Node": lambda: NodeAuthorizer(settings.names, feed),
            "AlwaysAllow": AlwaysAllow,
        }
        self.metrics = AuthorizationMetrics(settings.url)
        file = settings.given.authorization_config
        self._file = Path(file) if file else None
        self._data = b""
        self._problem = ""
        flag = "authorization-config" if file else "authorization-webhook-config-file"
        try:
            self._wanted = self._configured()
            self._types = {one.type for one in self._wanted} - {WEBHOOK}
            self._built = {type_: self._lasting[type_]() for type_ in self._types}
            self.authorizer = Union(self._members(self._wanted))
        except BadSettings:
            raise
        except (ValueError, Refusal) as problem:
            raise BadSettings(f"--{flag}: {problem}") from None

    def uses(self, type_: str) -> bool:
        return type_ in self._types

    async def follow(self) -> None:
        """Reload the file whenever it changes, until cancelled."""
        while self._file is not None:
            await asyncio.sleep(LOOK_EVERY)
            await self.look()

    async def look(self) -> None:
        """Look at the file once."""
        assert self._file is not None
        try:
            data = await asyncio.to_thread(read_bounded, self._file)
            # After a failure it is tried again: a kubeconfig may have been fixed meanwhile.
            if data != self._data or self._problem:
                self._data = data
                await self._reload(data)
            self._problem = ""
        except (ValueError, Refusal) as problem:
            if str(problem) != self._problem:
                self._problem = str(problem)
                log.error("authorization.not_reloaded: %s", problem)
                self.metrics.reloads.failed(self._clock.now())

    async def _reload(self, data: bytes) -> None:
        """Load the file; raises if it, or a kubeconfig that it names, is invalid."""
        wanted = await asyncio.to_thread(
            read_configuration, data, self._compiler, must_have=self._types
        )
        if wanted == self._wanted:
            return
        added = sorted({one.type for one in wanted} - {WEBHOOK, *self._built})
        if added:
            raise InvalidAuthorization(f"authorizers: these need a new start: {added}")
        self.authorizer.replace(await asyncio.to_thread(self._members, wanted))
        self._wanted = wanted
        log.info("authorization.reloaded", extra={"authorizers": [one.name for one in wanted]})
        self.metrics.reloads.succeeded(self._clock.now(), data)

    # -- what is configured ------------------------------------------------------------------

    def _configured(self) -> Wanted:
        if self._file is None:
            return self._from_flags()
        given, usual = self._settings.given, Given()
        for name in FLAGS:
            if getattr(given, name) != getattr(usual, name):
                flag = name.replace("_", "-")
                raise BadSettings(f"--authorization-config: not to be given with --{flag}")
        self._data = read_bounded(self._file)
        self.metrics.reloads.in_use(self._data)
        return read_configuration(self._data, self._compiler)

    def _from_flags(self) -> Wanted:
        modes = self._settings.given.authorization_mode
        return tuple(
            self._webhook_from_flags()
            if mode == WEBHOOK
            else AuthorizerSettings(mode, usual_name(mode))
            for mode in modes
        )

    def _webhook_from_flags(self) -> AuthorizerSettings:
        settings, given = self._settings, self._settings.given
        if not given.authorization_webhook_config_file:
            raise BadSettings(
                "--authorization-mode: Webhook needs --authorization-webhook-config-file"
            )
        webhook = WebhookSettings(
            version=given.authorization_webhook_version,
            allowed_seconds=settings.webhook_allowed_ttl,
            refused_seconds=settings.webhook_refused_ttl,
            kubeconfig=given.authorization_webhook_config_file,
        )
        return AuthorizerSettings(WEBHOOK, "default", webhook)

    # -- building it -------------------------------------------------------------------------

    def _members(self, wanted: Wanted) -> list[Member]:
        members: list[Member] = []
        for one in wanted:
            tally = self.metrics.decisions.of(one.type, one.name)
            members.append(Member(self._authorizer(one), tally))
            if one.type == ROLES:
                members.append(Member(self._secrets, tally))
        return members

    def _authorizer(self, wanted: AuthorizerSettings) -> ListingAuthorizer:
        if wanted.webhook is None:
            return self._built[wanted.type]
        settings = wanted.webhook
        expressions = [self._compiler.request_condition(one) for one in settings.conditions]
        monotonic = self._clock.monotonic
        conditions = (
            Conditions(expressions, wanted.name, self.metrics, monotonic) if expressions else None
        )
        remote = read_kubeconfig(Path(settings.kubeconfig))
        return Webhook(
            self._settings.names,
            JsonEndpoint(remote, timeout=settings.timeout),
            monotonic,
            settings,
            name=wanted.name,
            conditions=conditions,
            metrics=self.metrics,
        )


def _readers(names: Naming) -> list[str]:
    """The users of the controllers that work with the keys of certificate authorities."""
    prefix = f"system:serviceaccount:{names.system_namespace}:"
    return [prefix + one.account_name(names) for one in CONTROLLERS if one.reads_authority_keys]
