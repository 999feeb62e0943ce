"""The configured authorizers, combined, and replaced when their file changes.

`Authorization.authorizer` decides every request. `follow` checks the file every few seconds: a
valid new file takes effect with the next request, an invalid one is logged and changes nothing.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from orchid.features.rights.authorizers.conditions import Conditions
from orchid.features.rights.authorizers.configuration import (
    WEBHOOK,
    AuthorizerSettings,
    InvalidAuthorization,
    read_configuration,
)
from orchid.features.rights.authorizers.metrics import AuthorizationMetrics
from orchid.features.rights.authorizers.union import ListingAuthorizer, Member, Union
from orchid.features.rights.authorizers.webhook import Webhook
from orchid.kernel.access.json_endpoint import JsonEndpoint
from orchid.kernel.base.clock import Clock
from orchid.kernel.credentials.files import read_bounded
from orchid.kernel.credentials.refusals import Refusal
from orchid.kernel.expressions.cel import Compiler
from orchid.kernel.outbound.remote import FollowedKubeconfig
from orchid.kernel.wire.naming import Naming

log = logging.getLogger(__name__)

LOOK_EVERY = 5.0  # seconds
ROLES = "RBAC"

Wanted = tuple[AuthorizerSettings, ...]


class Authorization:
    def __init__(
        self,
        source: Path | Wanted,
        types: Mapping[str, Callable[[], ListingAuthorizer]],
        after_roles: Iterable[ListingAuthorizer],
        *,
        naming: Naming,
        server: str,
        clock: Clock,
    ) -> None:
        """`source`: a file, or the authorizers themselves. `types`: how to build each type that is
        no webhook. `after_roles`: authorizers that are asked after RBAC. `server`: the URL of this
        server, for metrics.
        """
        self._naming, self._after_roles, self._clock = naming, tuple(after_roles), clock
        self._compiler = Compiler()
        self.metrics = AuthorizationMetrics(server)
        self._file = source if isinstance(source, Path) else None
        self._data = b""
        self._problem = ""
        self._wanted = self._read(source) if isinstance(source, Path) else source
        self._types = {authorizer.type for authorizer in self._wanted} - {WEBHOOK}
        self._built = {type_: types[type_]() for type_ in self._types}
        self.authorizer = Union(self._members(self._wanted))

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
        configuration = await asyncio.to_thread(
            read_configuration, data, self._compiler, must_have=self._types
        )
        if configuration == self._wanted:
            return
        added = sorted({authorizer.type for authorizer in configuration} - {WEBHOOK, *self._built})
        if added:
            raise InvalidAuthorization(f"authorizers: these need a new start: {added}")
        self.authorizer.replace(await asyncio.to_thread(self._members, configuration))
        self._wanted = configuration
        log.info(
            "authorization.reloaded",
            extra={"authorizers": [authorizer.name for authorizer in configuration]},
        )
        self.metrics.reloads.succeeded(self._clock.now(), data)

    def _read(self, file: Path) -> Wanted:
        self._data = read_bounded(file)
        self.metrics.reloads.in_use(self._data)
        return read_configuration(self._data, self._compiler)

    def _members(self, configuration: Wanted) -> list[Member]:
        members: list[Member] = []
        for authorizer in configuration:
            tally = self.metrics.decisions.of(authorizer.type, authorizer.name)
            members.append(Member(self._authorizer(authorizer), tally))
            if authorizer.type == ROLES:
                members += [Member(other, tally) for other in self._after_roles]
        return members

    def _authorizer(self, authorizer: AuthorizerSettings) -> ListingAuthorizer:
        if authorizer.webhook is None:
            return self._built[authorizer.type]
        settings = authorizer.webhook
        expressions = [
            self._compiler.request_condition(condition) for condition in settings.conditions
        ]
        monotonic = self._clock.monotonic
        conditions = (
            Conditions(expressions, authorizer.name, self.metrics, monotonic)
            if expressions
            else None
        )
        remote = FollowedKubeconfig(Path(settings.kubeconfig), monotonic)
        return Webhook(
            self._naming,
            JsonEndpoint(remote, timeout=settings.timeout),
            monotonic,
            settings,
            name=authorizer.name,
            conditions=conditions,
            metrics=self.metrics,
        )
