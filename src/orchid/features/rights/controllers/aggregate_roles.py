"""Write the rules of the selected roles into aggregated ClusterRoles.

Reads   clusterroles, all of them: any may begin or cease to be selected
Writes  the rules of those with an aggregationRule
Never   grants by itself: the user who labelled a role for aggregation has granted it

The evaluator computes aggregation at each use; the stored rules are for people to read.
"""

import functools
from collections.abc import Iterator

from orchid.features.rights.kinds.role import ClusterRole, aggregate
from orchid.kernel.client.client import DELETED, Client, ListSelection, WatchedChange
from orchid.kernel.runtime.declaration import ControllerDeclaration
from orchid.kernel.runtime.loop import Controller
from orchid.kernel.wire.errors import NotFound
from orchid.kernel.wire.policy_rules import READ, rule
from orchid.kernel.wire.selectors.label_selectors import LabelSelector, selects
from orchid.kernel.wire.struct import replace


class AggregateRoles(Controller[ClusterRole]):
    name = "clusterrole-aggregation"
    workers = 1

    def __init__(self, client: Client) -> None:
        super().__init__(client, ListSelection(ClusterRole))
        self._roles: dict[str, ClusterRole] = {}
        self._is_complete = False

    def starting(self) -> None:
        self._roles.clear()
        self._is_complete = False  # until then rules of roles that are not yet loaded would be lost

    async def all_listed(self) -> None:
        self._is_complete = True
        self._look_at_all()

    def take(self, event: WatchedChange[ClusterRole]) -> None:
        role = event.object
        if event.type == DELETED:
            self._roles.pop(role.name, None)
            self.queue.drop(("", role.name))
        else:
            self._roles[role.name] = role
        if self._is_complete:
            self._look_at_all()

    def _look_at_all(self) -> None:
        for role in self._roles.values():
            if role.aggregation_rule is not None:
                self.queue.add(("", role.name), role)

    async def reconcile(self, role: ClusterRole) -> None:
        newest = self._roles.get(role.name)
        if newest is None or newest.aggregation_rule is None:
            return
        roles = [self._roles[name] for name in sorted(self._roles)]
        rules = aggregate(newest, functools.partial(_matching, roles))
        if rules != (newest.rules or ()):
            try:
                await self._client.update(replace(newest, rules=rules or None))
            except NotFound:
                return


def _matching(roles: list[ClusterRole], selector: LabelSelector) -> Iterator[ClusterRole]:
    return (role for role in roles if selects(selector, role.metadata.labels))


CONTROLLER = ControllerDeclaration(
    name="clusterrole-aggregation",
    long_name="clusterrole-aggregation-controller",
    account="clusterrole-aggregation-controller",
    rights=lambda naming: (
        rule(("escalate", "patch", "update", *READ), naming.rbac, ("clusterroles",)),
    ),
    build=lambda client, context, events: AggregateRoles(client),
)
