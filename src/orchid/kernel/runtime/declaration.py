"""The declaration of a controller, at the end of its own file.

assembly/controllers/running.py lists the declarations; the bootstrap policy gives each controller's
account its permissions.
"""

from collections.abc import Callable

import msgspec

from orchid.kernel.client.client import Client
from orchid.kernel.runtime.context import ControllerContext
from orchid.kernel.runtime.events import EventRecorder
from orchid.kernel.runtime.loop import Running
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.policy_rules import PolicyRule

Rights = Callable[[Naming], tuple[PolicyRule, ...]]
Build = Callable[[Client, ControllerContext, EventRecorder], Running | None]


class ComponentIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """The identity of a component that uses the API: its account, and its permissions."""

    name: str  # of a controller, for --controllers
    account: str  # its service account, in the system namespace; may hold {component}
    rights: Rights  # the minimum it needs
    in_system_namespace: bool = False  # whether its permissions are limited to it
    # Additional permissions, in the system namespace alone.
    rights_at_home: Rights = lambda names: ()
    # Whether it may get the Secrets that certificate authorities name; no role can list these.
    reads_authority_keys: bool = False

    def account_name(self, naming: Naming) -> str:
        return self.account.format(component=naming.component)


class ControllerDeclaration(ComponentIdentity, frozen=True, kw_only=True):
    """A controller: its identity, its other names, and its constructor."""

    long_name: str  # its name in Kubernetes
    other_names: tuple[str, ...] = ()
    build: Build  # returns None if it has no purpose here
