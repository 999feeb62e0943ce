"""How a controller is declared: at the foot of its own file, and nowhere else.

controllers/running.py lists the declarations; the bootstrap policy gives each controller's account
its rights.
"""

from collections.abc import Callable

import msgspec

from orchid.client.client import Client
from orchid.controllers.runtime.context import ControllerContext
from orchid.controllers.runtime.events import EventRecorder
from orchid.controllers.runtime.loop import Running
from orchid.kinds.role import PolicyRule
from orchid.wire.naming import Naming

Build = Callable[[Client, ControllerContext, EventRecorder], Running | None]


class ComponentIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """The identity of a component that goes through the API: its account, and its rights."""

    name: str  # of a controller, as --controllers knows it
    account: str  # its service account, in the system namespace; may hold {component}
    rights: Callable[[Naming], tuple[PolicyRule, ...]]  # what it needs, and no more
    in_system_namespace: bool = False  # whether its rights end there
    # What it needs besides, in the system namespace alone.
    rights_at_home: Callable[[Naming], tuple[PolicyRule, ...]] = lambda names: ()
    # Whether it gets the Secrets that certificate authorities name; no role can say which.
    reads_authority_keys: bool = False

    def account_name(self, names: Naming) -> str:
        return self.account.format(component=names.component)


class ControllerDeclaration(ComponentIdentity, frozen=True, kw_only=True):
    """One controller: its identity, its other names, and how it is made."""

    long_name: str  # as the reference knows it
    other_names: tuple[str, ...] = ()
    build: Build  # None when it has nothing to work with
