"""The parts of token exchange, if --token-exchange-config names its issuers. Imported only then."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from orchid.features.accounts.token_issuer import TokenIssuer
from orchid.features.exchange import exchange
from orchid.features.exchange.exchanger import TokenExchanger
from orchid.features.exchange.explainer import PolicyExchangeExplainer
from orchid.features.exchange.judging import PolicyJudge
from orchid.features.exchange.policy_index import ExchangePolicyIndex
from orchid.features.exchange.settings import ExchangeSettings
from orchid.features.exchange.subject_tokens import (
    Configuration,
    SubjectTokens,
    configuration_reader,
)
from orchid.features.exchange.uses import PolicyUses
from orchid.features.introspection.addresses import AddressLimits
from orchid.features.ledger.exchange_counts import ExchangeCounts
from orchid.features.revocation.revocations import Revocations
from orchid.features.sign_in.oidc.keys import KeySource
from orchid.features.sign_in.parts import OutsideIssuers
from orchid.kernel.base.clock import Clock
from orchid.kernel.context import SERVER, Context
from orchid.kernel.credentials.files import read_bounded
from orchid.kernel.credentials.refusals import Refusal
from orchid.kernel.settings.checking import Settings
from orchid.kernel.settings.errors import BadSettings


def subject_tokens(
    settings: Settings, clock: Clock, shared: Mapping[str, KeySource]
) -> SubjectTokens:
    """The issuers of the file; raises BadSettings."""
    with _as_bad_settings():
        return SubjectTokens(_file(settings), _reader(settings), clock, shared=shared)


def issuers(settings: Settings) -> Configuration:
    """The issuers of the file as it is now; raises BadSettings."""
    with _as_bad_settings():
        return _reader(settings)(read_bounded(_file(settings)))


def _file(settings: Settings) -> Path:
    return Path(settings.given.of(ExchangeSettings).token_exchange_config)


def _reader(settings: Settings) -> Callable[[bytes], Configuration]:
    return configuration_reader(f"{settings.naming.identity}/v1alpha1", settings.issuers)


@contextmanager
def _as_bad_settings() -> Iterator[None]:
    try:
        yield
    except (ValueError, Refusal) as problem:
        raise BadSettings(f"--token-exchange-config: {problem}") from None


class TokenExchangeParts:
    """Everything of the endpoint: its page, and what runs beside it."""

    def __init__(self, context: Context) -> None:
        feed, naming, clock = context.feed, context.naming, context.clock
        outside = context.port(OutsideIssuers)
        shared = outside.authenticator.sources if outside.authenticator else {}
        self.subjects = subject_tokens(context.settings, clock, shared)
        self.policies = ExchangePolicyIndex(feed)
        self.judge = PolicyJudge(context.offload)
        self.exchanger = TokenExchanger(
            naming,
            self.subjects,
            feed,
            context.port(TokenIssuer),
            policies=self.policies,
            judge=self.judge,
            revocations=context.port(Revocations),
            username_of=outside.username_of,
            clock=clock,
        )
        self.explainer = PolicyExchangeExplainer(
            naming,
            self.exchanger,
            self.policies,
            self.judge,
            authorizer=context.authorizer,
            clock=clock,
        )
        self.counts = ExchangeCounts(context.store, clock.now)
        self.uses = PolicyUses(context.clients.of_user(SERVER), self.counts.exchanged)
        self.limits = AddressLimits(clock.monotonic)
        self.page = exchange.TokenExchange(naming, self.exchanger, self.limits, self.uses)

    async def run(self) -> None:
        """Follow the file and the keys, and write uses, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for work in (self.subjects.run(), self.uses.run(), self.counts.run()):
                tasks.create_task(work)

    async def leave(self) -> None:
        """Write data that only this process has."""
        await self.uses.write()
        await self.counts.write()
