"""The parts of authorization: roles, the configured authorizers, and their policies."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from orchid.features.rights.authorizers.configured import ROLES, Authorization
from orchid.features.rights.authorizers.from_settings import authorization
from orchid.features.rights.authorizers.implied_rights import ImpliedRights
from orchid.features.rights.authorizers.rbac import RBAC
from orchid.features.rights.authorizers.union import Union
from orchid.features.rights.bootstrap import BootstrapPolicy
from orchid.features.rights.kinds import self_subject_rules_review, subject_access_review
from orchid.features.rights.policies.role_escalation import RoleEscalation
from orchid.features.rights.reconcile import reconcile
from orchid.kernel.base.metrics import Metric
from orchid.kernel.context import (
    AuthorizerOffer,
    AuthorizerOffers,
    AuthorizerPort,
    Context,
    ServerPart,
)
from orchid.kernel.engine.interfaces import AdmissionPolicy
from orchid.kernel.engine.kind import Kind
from orchid.kernel.feature import Background


class ListedRights(NamedTuple):
    """The configured authorizers, which can also list the rules of a user."""

    authorizer: Union


def _authorization(context: Context) -> Authorization:
    offers = context.port(AuthorizerOffers).all
    return authorization(
        context.settings,
        {offer.mode: offer.build for offer in offers if offer.mode},
        [offer.build() for offer in offers if not offer.mode],
        context.clock,
    )


PARTS = (
    ServerPart(ListedRights, lambda context: ListedRights(context.port(Authorization).authorizer)),
    ServerPart(RBAC, lambda context: RBAC(context.naming, context.feed, context.offload)),
    ServerPart(Authorization, _authorization),
    ServerPart(
        AuthorizerPort, lambda context: AuthorizerPort(context.port(Authorization).authorizer)
    ),
)


def authorizers(context: Context) -> Iterable[AuthorizerOffer]:
    yield AuthorizerOffer(ROLES, lambda: context.port(RBAC))
    yield AuthorizerOffer("", lambda: ImpliedRights(context.naming, context.port(RBAC)))


def policies(context: Context) -> Iterable[AdmissionPolicy]:
    yield RoleEscalation(context.authorizer, context.port(RBAC))


def served_kinds(context: Context) -> Iterable[Kind[Any]]:
    authorizer = context.port(Authorization).authorizer
    yield from subject_access_review.declare(context.naming, authorizer)
    yield self_subject_rules_review.declare(context.naming, authorizer)


def metrics(context: Context) -> Iterable[Metric]:
    return context.port(Authorization).metrics.all


async def prepare(context: Context) -> None:
    """Write the default roles, which also have the rights of every component."""
    if context.port(Authorization).uses(ROLES):
        await reconcile(context.port(BootstrapPolicy), context.local, context.naming)


def background(context: Context, controls: bool) -> Iterable[Background]:
    yield Background(run=context.port(Authorization).follow)
