"""The list of all controllers, their selection and their execution.

Start with `CONTROLLERS` and `run_controllers`. `--controllers` selects (`chosen`); each controller
has a client of its own and acts under its own name with its own permissions; one leader at a time
runs them all. A controller that fails is logged with a traceback and restarted after a pause; the
others continue.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from orchid.features.accounts.controllers import (
    clean_token_secrets,
    create_default_accounts,
    fill_token_secrets,
)
from orchid.features.acme.controllers import clean_orders
from orchid.features.approving.controllers import approve_requests, keep_approvals
from orchid.features.authorities.controllers import keep_authorities, rotate_authority_keys
from orchid.features.certificates.controllers import (
    clean_issued,
    clean_pod_requests,
    clean_requests,
    sign_pod_requests,
    sign_requests,
)
from orchid.features.clusters.controllers import (
    check_clusters,
    clean_clusters,
    record_cluster_certificates,
)
from orchid.features.notices.controllers import send_notices
from orchid.features.objects.controllers import clean_events, collect_dependents, finish_namespaces
from orchid.features.objects.event_writer import EventWriter
from orchid.features.objects.leader import Leader
from orchid.features.revoking.controllers import (
    clean_revocations,
    confirm_revocations,
    mark_revoked,
    publish_revocation_lists,
)
from orchid.features.rights.controllers import aggregate_roles
from orchid.features.sign_in.controllers import clean_bootstrap_tokens
from orchid.features.token_keys.controllers import rotate_token_keys
from orchid.features.trust_bundles.controllers import (
    publish_bundles,
    publish_root_ca,
    publish_trust_bundles,
)
from orchid.kernel.client.client import Client
from orchid.kernel.runtime.context import ControllerContext
from orchid.kernel.runtime.declaration import ControllerDeclaration
from orchid.kernel.runtime.events import EventRecorder
from orchid.kernel.runtime.loop import Running, keep_running

CONTROLLERS: Final[tuple[ControllerDeclaration, ...]] = (
    approve_requests.CONTROLLER,
    sign_requests.CONTROLLER,
    sign_pod_requests.CONTROLLER,
    clean_requests.CONTROLLER,
    clean_pod_requests.CONTROLLER,
    clean_issued.CONTROLLER,
    keep_approvals.CONTROLLER,
    clean_orders.CONTROLLER,
    confirm_revocations.CONTROLLER,
    mark_revoked.CONTROLLER,
    clean_revocations.CONTROLLER,
    publish_revocation_lists.CONTROLLER,
    publish_trust_bundles.CONTROLLER,
    record_cluster_certificates.CONTROLLER,
    check_clusters.CONTROLLER,
    clean_clusters.CONTROLLER,
    publish_bundles.CONTROLLER,
    keep_authorities.CONTROLLER,
    rotate_token_keys.CONTROLLER,
    rotate_authority_keys.CONTROLLER,
    create_default_accounts.CONTROLLER,
    fill_token_secrets.CONTROLLER,
    clean_token_secrets.CONTROLLER,
    publish_root_ca.CONTROLLER,
    clean_bootstrap_tokens.CONTROLLER,
    finish_namespaces.CONTROLLER,
    collect_dependents.CONTROLLER,
    aggregate_roles.CONTROLLER,
    clean_events.CONTROLLER,
    send_notices.CONTROLLER,
)

LEADER, EVENTS = "leader-election", "events"  # clients that belong to no single controller

ClientOf = Callable[[str], Client]


class UnknownController(ValueError):
    """A word of --controllers that names no controller."""


def chosen(words: Iterable[str]) -> frozenset[str]:
    """The selected controllers: `*`, `name`, `-name`. Exclusions win."""
    wanted: set[str] = set()
    unwanted: set[str] = set()
    for word in words:
        if word == "*":
            wanted.update(one.name for one in CONTROLLERS)
            continue
        name = _name_of(word.removeprefix("-"))
        if name is None:
            known = ", ".join(one.name for one in CONTROLLERS)
            raise UnknownController(f"{word!r} is no controller; there are {known}")
        (unwanted if word.startswith("-") else wanted).add(name)
    return frozenset(wanted - unwanted)


def _name_of(word: str) -> str | None:
    """The name of a controller by any of its names."""
    for one in CONTROLLERS:
        # One of them has the name of the server's program in front.
        known = (one.name, one.long_name, *one.other_names)
        if word in known or word.endswith(f"-serving-{one.long_name}"):
            return one.name
    return None


async def run_controllers(
    wanted: frozenset[str], client_of: ClientOf, context: ControllerContext
) -> None:
    """Run these controllers whenever this process leads, until cancelled."""
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
        events = EventWriter(client_of(EVENTS), context.clock)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(events.run())
            for controller in build(wanted, client_of, context, events):
                tasks.create_task(keep_running(controller))

    await leader.run(work)


def build(
    wanted: frozenset[str],
    client_of: ClientOf,
    context: ControllerContext,
    events: EventRecorder,
) -> list[Running]:
    """Build the selected controllers, except those without a purpose here."""
    made = (
        one.build(client_of(one.name), context, events) for one in CONTROLLERS if one.name in wanted
    )
    return [controller for controller in made if controller is not None]
