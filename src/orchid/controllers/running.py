"""Which controllers run, and running them: the list of all there are.

Start with `run_controllers`. The words of `--controllers` choose (`chosen`); each controller gets a
client of its own, so that it acts under its own name and with its own rights; one leader at a time
runs them all. `ControllerContext` is what they need beside the API, made by the assembly. A
controller that breaks is logged whole and started again after a pause; the others go on.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from orchid.client.client import Client
from orchid.controllers.aggregate_roles import AggregateRoles
from orchid.controllers.approve_requests import ApproveRequests
from orchid.controllers.clean_bootstrap_tokens import CleanBootstrapTokens
from orchid.controllers.clean_requests import CleanRequests
from orchid.controllers.clean_token_secrets import CleanTokenSecrets
from orchid.controllers.collect_dependents import CollectDependents
from orchid.controllers.create_default_accounts import CreateDefaultAccounts
from orchid.controllers.fill_token_secrets import FillTokenSecrets
from orchid.controllers.finish_namespaces import FinishNamespaces
from orchid.controllers.publish_root_ca import PublishRootCA
from orchid.controllers.publish_trust_bundles import PublishTrustBundles
from orchid.controllers.record_events import CleanEvents, EventRecorder
from orchid.controllers.runtime.leader import Leader
from orchid.controllers.runtime.loop import Clock, Running
from orchid.controllers.sign_requests import Signer, SignRequests
from orchid.credentials import certificates, pem, profiles
from orchid.credentials.profiles import Profile
from orchid.credentials.tokens import TokenSigner
from orchid.wire.naming import Naming
from orchid.wire.user import MASTERS, NODE_PREFIX, NODES

log = logging.getLogger(__name__)

RESTART_SECONDS = 5.0

# Every controller, and the longer name that the reference knows it by.
LONG_NAMES: Final = {
    "csrapproving": "certificatesigningrequest-approving-controller",
    "csrsigning": "certificatesigningrequest-signing-controller",
    "csrcleaner": "certificatesigningrequest-cleaner-controller",
    "trust-bundle-publisher": "clustertrustbundle-publisher-controller",
    "serviceaccount": "serviceaccount-controller",
    "serviceaccount-token": "serviceaccount-token-controller",
    "legacy-serviceaccount-token-cleaner": "legacy-serviceaccount-token-cleaner-controller",
    "root-ca-certificate-publisher": "root-ca-certificate-publisher-controller",
    "tokencleaner": "token-cleaner-controller",
    "namespace": "namespace-controller",
    "garbagecollector": "garbage-collector-controller",
    "clusterrole-aggregation": "clusterrole-aggregation-controller",
    "event-cleaner": "event-cleaner-controller",
}

OTHER_NAMES: Final = {"root-ca-cert-publisher": "root-ca-certificate-publisher"}

LEADER, EVENTS = "leader-election", "events"  # clients that belong to no single controller

ClientOf = Callable[[str], Client]


class UnknownController(ValueError):
    """A word of --controllers that names none."""


@dataclass(frozen=True)
class ControllerContext:
    """What the controllers need beside the API."""

    names: Naming
    clock: Clock
    signers: Mapping[str, Signer]  # those that have an authority
    signing_duration: timedelta
    token_issuer: Callable[[], TokenSigner] | None  # of the tokens of Secrets
    root_ca: Callable[[], str]  # by which clients verify this server; "" if nobody knows
    identity: str  # of this process among the candidates for leader


def platform_profiles(names: Naming) -> dict[str, Profile]:
    """The rules of every platform signer, by its name."""
    node = {"nodes_group": NODES, "node_user_prefix": NODE_PREFIX}
    made = (
        profiles.client(names.client_signer, (MASTERS,)),
        profiles.node_client(names.node_client_signer, **node),
        profiles.node_serving(names.node_serving_signer, **node),
        profiles.legacy(names.legacy_signer, (MASTERS,)),
    )
    return {profile.signer_name: profile for profile in made}


def chosen(words: Iterable[str]) -> frozenset[str]:
    """The controllers that the words ask for: `*`, `name`, `-name`. What is excluded stays out."""
    wanted: set[str] = set()
    unwanted: set[str] = set()
    for word in words:
        if word == "*":
            wanted.update(LONG_NAMES)
            continue
        name = _short_name(word.removeprefix("-"))
        if name is None:
            known = ", ".join(LONG_NAMES)
            raise UnknownController(f"{word!r} is no controller; there are {known}")
        (unwanted if word.startswith("-") else wanted).add(name)
    return frozenset(wanted - unwanted)


def _short_name(word: str) -> str | None:
    """The name of a controller by any of its names."""
    if word in LONG_NAMES:
        return word
    for name, long in LONG_NAMES.items():
        # One of them has the name of the server's program in front.
        if word == long or word.endswith(f"-serving-{long}"):
            return name
    return OTHER_NAMES.get(word)


async def run_controllers(
    wanted: frozenset[str], client_of: ClientOf, context: ControllerContext
) -> None:
    """Run these controllers, whenever this process leads, until cancelled."""
    if not wanted:
        return
    names = context.names
    leader = Leader(
        client_of(LEADER),
        context.clock,
        namespace=names.system_namespace,
        name=names.controller_lease,
        identity=context.identity,
    )

    async def work() -> None:
        events = EventRecorder(client_of(EVENTS), context.clock)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(events.run())
            for controller in build(wanted, client_of, context, events):
                tasks.create_task(_kept_running(controller))

    await leader.run(work)


async def _kept_running(controller: Running) -> None:
    while True:
        try:
            await controller.run()
        except Exception:
            log.exception("controller.broken", extra={"controller": controller.name})
        await asyncio.sleep(RESTART_SECONDS)


def build(
    wanted: frozenset[str], client_of: ClientOf, context: ControllerContext, events: EventRecorder
) -> list[Running]:
    """Make the controllers that are wanted and can work."""
    makers = {
        **_certificates(context, events),
        **_accounts(context, events),
        **_housekeeping(context),
    }
    return [make(client_of(name)) for name, make in makers.items() if name in wanted]


Maker = Callable[[Client], Running]


def _certificates(context: ControllerContext, events: EventRecorder) -> dict[str, Maker]:
    names, clock = context.names, context.clock
    node_client = platform_profiles(names)[names.node_client_signer]
    makers: dict[str, Maker] = {
        "csrapproving": lambda client: ApproveRequests(client, node_client, names, events),
        "csrcleaner": lambda client: CleanRequests(client, clock),
    }
    if context.signers:
        makers["csrsigning"] = lambda client: SignRequests(
            client, context.signers, context.signing_duration, clock, events
        )
    anchors = _anchors(context)
    if anchors:
        makers["trust-bundle-publisher"] = lambda client: PublishTrustBundles(
            client, anchors, clock, alone=names.server_serving_signer
        )
    return makers


def _anchors(context: ControllerContext) -> dict[str, Callable[[], str]]:
    """The text of each bundle to publish, as it is now."""
    anchors = {name: _anchor(signer) for name, signer in context.signers.items()}
    if context.root_ca():
        anchors[context.names.server_serving_signer] = context.root_ca
    return anchors


def _anchor(signer: Signer) -> Callable[[], str]:
    """The certificate at the top of the signer's chain, with which a verifier begins."""

    def text() -> str:
        top = certificates.encode(signer.authority().chain[-1])
        return pem.encode(pem.CERTIFICATE, top).decode("ascii")

    return text


def _accounts(context: ControllerContext, events: EventRecorder) -> dict[str, Maker]:
    names, clock = context.names, context.clock
    makers: dict[str, Maker] = {
        "serviceaccount": CreateDefaultAccounts,
        "legacy-serviceaccount-token-cleaner": (
            lambda client: CleanTokenSecrets(client, clock, names)
        ),
        "tokencleaner": lambda client: CleanBootstrapTokens(client, clock, names),
    }
    issuer = context.token_issuer
    if issuer is not None:
        makers["serviceaccount-token"] = lambda client: FillTokenSecrets(
            client, issuer, context.root_ca, names, events
        )
    if context.root_ca():
        makers["root-ca-certificate-publisher"] = lambda client: PublishRootCA(
            client, context.root_ca, names
        )
    return makers


def _housekeeping(context: ControllerContext) -> dict[str, Maker]:
    names, clock = context.names, context.clock
    return {
        "namespace": lambda client: FinishNamespaces(client, clock, names),
        "garbagecollector": CollectDependents,
        "clusterrole-aggregation": AggregateRoles,
        "event-cleaner": lambda client: CleanEvents(client, clock),
    }
