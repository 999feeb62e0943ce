"""Lease: a claim that somebody renews while they live. Leaders and node agents hold them.

Every serving process of ours has a Lease, too: its annotations report the revision that it has
applied, the token keys that it has, the authority of its serving certificate, and the keys that
open and seal values in the store.
`LiveServers` is the set of those that are renewed. After a start, a dead server counts as live for
a while. A step that waits for all servers only waits longer; a choice that could be reversed must
ask for `is_renewed` (docs/decisions/0035-sealing-keys.md lists both).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Annotated, Final, NamedTuple

from msgspec import field

from orchid.kernel.engine.kind import Column, Kind, Scope
from orchid.kernel.engine.request import Request
from orchid.kernel.engine.strategy import Strategy
from orchid.kernel.engine.tables import AGE, NAME
from orchid.kernel.wire.fields import FieldError, Path, invalid
from orchid.kernel.wire.meta import Object
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.rules.names import path_segment_errors
from orchid.kernel.wire.struct import Wire, describe, proto, replace

SPEC = Path() / "spec"
SERVER_LASTS: Final = 30  # seconds without renewal, after which a server counts as dead


class LeaseSpec(Wire):
    """The holder of a lease and its times."""

    holder_identity: Annotated[str | None, proto(1), describe("The holder.")] = None
    lease_duration_seconds: Annotated[
        int | None,
        proto(2, "int32"),
        describe("Seconds without renewal after which others may acquire it."),
    ] = None
    acquire_time: Annotated[
        str | None, proto(3, "micro-time"), describe("When the holder acquired it.")
    ] = None
    renew_time: Annotated[
        str | None, proto(4, "micro-time"), describe("When the holder last renewed it.")
    ] = None
    lease_transitions: Annotated[
        int | None, proto(5, "int32"), describe("The number of changes of the holder.")
    ] = None
    strategy: Annotated[str | None, proto(6), describe("The election strategy.")] = None
    preferred_holder: Annotated[str | None, proto(7), describe("The preferred next holder.")] = None


class Lease(Object):
    """A lock that its holder renews."""

    spec: Annotated[LeaseSpec, proto(2), describe("The holder and the times.")] = field(
        default_factory=LeaseSpec
    )


class Rules(Strategy[Lease]):
    only_known_finalizers = False

    def name_errors_on_update(self, name: str, prefix: bool) -> Iterable[str]:
        return path_segment_errors(name, prefix)

    def prepare_for_create(self, new: Lease, request: Request) -> Lease:
        return _without_election(new, LeaseSpec())

    def prepare_for_update(self, new: Lease, old: Lease, request: Request) -> Lease:
        return _without_election(new, old.spec)

    def validate(self, new: Lease) -> Iterator[FieldError]:
        spec = new.spec
        if spec.lease_duration_seconds is not None and spec.lease_duration_seconds <= 0:
            yield invalid(
                SPEC / "leaseDurationSeconds",
                spec.lease_duration_seconds,
                "must be greater than 0",
            )
        if spec.lease_transitions is not None and spec.lease_transitions < 0:
            yield invalid(
                SPEC / "leaseTransitions",
                spec.lease_transitions,
                "must be greater than or equal to 0",
            )


def _without_election(new: Lease, before: LeaseSpec) -> Lease:
    """Drop the fields of coordinated leader election, which is not supported."""
    strategy = new.spec.strategy if before.strategy else None
    preferred = new.spec.preferred_holder if before.preferred_holder else None
    if (strategy, preferred) == (new.spec.strategy, new.spec.preferred_holder):
        return new
    return replace(new, spec=replace(new.spec, strategy=strategy, preferred_holder=preferred))


def declare(naming: Naming) -> Kind[Lease]:
    return Kind(
        type=Lease,
        group=naming.coordination,
        version="v1",
        known_versions=("v1beta1",),
        plural="leases",
        scope=Scope.NAMESPACED,
        may_update_unconditionally=False,
        creates_on_update=True,
        rules=Rules(),
        columns=(
            NAME,
            Column(
                "Holder",
                lambda lease, now: lease.spec.holder_identity or "",
                description="The holder.",
            ),
            AGE,
        ),
    )


# --- the Leases of our own servers ------------------------------------------------------------


def server_label(naming: Naming) -> str:
    """The label of every server's Lease."""
    return f"{naming.identity}/server"


def server_prefix(naming: Naming) -> str:
    """The beginning of the name of every server's Lease."""
    return f"{naming.component}-server-"


def keys_annotation(naming: Naming) -> str:
    """The ids of the token keys that a server can use, separated by commas."""
    return f"{naming.identity}/keys"


def signs_annotation(naming: Naming) -> str:
    """The id of the token key that a server signs with."""
    return f"{naming.identity}/signs"


def serves_annotation(naming: Naming) -> str:
    """The id of the authority key that signed a server's serving certificate."""
    return f"{naming.identity}/serves"


def opens_annotation(naming: Naming) -> str:
    """The sealing keys with which a server can open values: prefix and id, comma-separated."""
    return f"{naming.identity}/opens"


def seals_annotation(naming: Naming) -> str:
    """The sealing keys with which a server seals new values, for each prefix."""
    return f"{naming.identity}/seals"


class ServerKeys(NamedTuple):
    """The keys of one server, as its Lease reports them. An older version reports none."""

    keys: frozenset[str] = frozenset()
    signs: str = ""
    opens: frozenset[str] = frozenset()
    seals: frozenset[str] = frozenset()
    serves: str = ""
    is_renewed: bool = False  # seen to be renewed; otherwise its server may be dead


class LiveServers:
    """The servers whose Leases are renewed, judged by our own clock, not by times in a Lease."""

    def __init__(self, naming: Naming, monotonic: Callable[[], float]) -> None:
        self._keys, self._signs = keys_annotation(naming), signs_annotation(naming)
        self._opens, self._seals = opens_annotation(naming), seals_annotation(naming)
        self._serves = serves_annotation(naming)
        self._monotonic = monotonic
        self._heard: dict[str, _Heard] = {}
        self._before: dict[str, _Heard] = {}  # until the Leases were read again

    def renewed(self, name: str, version: str, annotations: Mapping[str, str]) -> None:
        """A Lease was written, or is read for the first time, or again."""
        before = self._heard.get(name) or self._before.get(name)
        if before is not None and before.version == version:
            self._heard[name] = before
            return
        keys = ServerKeys(
            _listed(annotations, self._keys),
            annotations.get(self._signs, ""),
            _listed(annotations, self._opens),
            _listed(annotations, self._seals),
            annotations.get(self._serves, ""),
            is_renewed=before is not None,
        )
        self._heard[name] = _Heard(keys, version, self._monotonic())

    def ended(self, name: str) -> None:
        self._heard.pop(name, None)

    def clear(self) -> None:
        """All Leases are about to be read again."""
        self._before, self._heard = self._heard, {}

    def live(self) -> dict[str, ServerKeys]:
        """The keys of each live server, by the name of its Lease."""
        since = self._monotonic() - SERVER_LASTS
        return {name: one.keys for name, one in self._heard.items() if one.at >= since}


class _Heard(NamedTuple):
    """A Lease as it was read last, and when."""

    keys: ServerKeys
    version: str
    at: float


def _listed(annotations: Mapping[str, str], name: str) -> frozenset[str]:
    return frozenset(filter(None, annotations.get(name, "").split(",")))
