"""Kind: the declaration of a kind, the source of everything generic.

    Kind(type=ConfigMap, group="", version="v1", plural="configmaps", scope=Scope.NAMESPACED, ...)

Routes, discovery, tables, selectors, field validation, patches, OpenAPI and protobuf all use this
declaration. A kind that stores nothing (a review) declares `acts`; a subresource is another
`Endpoint`.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum
from functools import cached_property
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import msgspec

from orchid.kernel.engine.ledger.entries import Fact
from orchid.kernel.engine.request import Request, Target
from orchid.kernel.engine.strategy import Strategy
from orchid.kernel.engine.tombstones import Tombstone
from orchid.kernel.wire.codec.documents import Decoder
from orchid.kernel.wire.errors import ErrorSubject
from orchid.kernel.wire.meta import Object
from orchid.kernel.wire.schema import Fields, confidential_paths, schema_of

T = TypeVar("T", bound=Object)

# Notes that the server stores beside an object, from (new, old or None, request). They are merged
# into the stored ones; None: no change.
Note = Callable[[T, T | None, Request], Mapping[str, str] | None]

LARGEST_BODY = 3_145_728  # of any request, as in Kubernetes
LARGEST_REVIEW = 131_072  # of reviews, which store nothing
STORED_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
ENDPOINT_VERBS = ("get", "patch", "update")


class Scope(Enum):
    NAMESPACED = "Namespaced"
    CLUSTER = "Cluster"


class Column(msgspec.Struct, frozen=True):
    """A column of the table that `kubectl get` shows. A cell is computed from the object and
    now.
    """

    name: str
    cell: Callable[[Any, datetime], Any]
    type: str = "string"
    format: str = ""
    description: str = ""
    priority: int = 0


class Unset(NamedTuple):
    """An optional field: its name in JSON, and its value if it is missing."""

    name: bytes
    value: str


class Acting(Protocol[T]):
    """A kind that performs an action when it is created, and stores nothing."""

    async def create(self, new: T, request: Request) -> T: ...


class Endpoint(msgspec.Struct, frozen=True, eq=False):
    """A subresource under an object: the fields that a write may change, and its rules.

    With `kind` it is an action of another kind under the object (`serviceaccounts/token`).
    """

    name: str
    writes: tuple[str, ...] = ()
    rules: Strategy[Any] = msgspec.field(default_factory=Strategy[Any])
    verbs: tuple[str, ...] = ENDPOINT_VERBS
    has_table: bool = True
    unowned: tuple[str, ...] = ()  # writable, but never recorded in managedFields
    kind: "Kind[Any] | None" = None


@dataclass(frozen=True, eq=False)
class Kind(Generic[T]):
    """The declaration of a kind. Two kinds are equal only if identical."""

    type: type[T]
    group: str
    version: str
    plural: str
    scope: Scope
    rules: Strategy[T] = field(default_factory=Strategy[T])
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    columns: tuple[Column, ...] = ()
    selectable: Mapping[str, Callable[[T], str]] = field(default_factory=dict)
    # Selectable fields that few objects have, computed from the field of that name alone.
    sparse: tuple[str, ...] = ()
    endpoints: tuple[Endpoint, ...] = ()
    # Fields that writes to the main endpoint may change; all others keep their stored value. None:
    # every field. `creates` is the same for a create, if it differs.
    writes: tuple[str, ...] | None = None
    creates: tuple[str, ...] | None = None
    counts_generation: bool = (
        False  # metadata.generation: 1, and 1 more for each change of the spec
    )
    owned: tuple[str, ...] = ()  # ignored on write, but still recorded in managedFields
    may_update_unconditionally: bool = True
    creates_on_update: bool = False  # PUT of a missing object creates it
    answers_deleted_object: bool = False  # DELETE returns the object instead of a Status
    acts: Acting[T] | None = None  # it sets every field that is not in `writes`
    answers_what_was_sent: bool = True  # for reviews: whether the answer echoes the request
    verbs: tuple[str, ...] = STORED_VERBS
    largest_body: int = LARGEST_BODY  # bytes
    # Applied to client input before anything else (and only then).
    defaults: Callable[[T], T] | None = None
    # Other versions in which the same objects are served. They have the same fields.
    versions: tuple[str, ...] = ()
    # The same objects in another group. Their type has the same Python names; wire names may
    # differ.
    beside: tuple["Kind[Any]", ...] = ()
    stored_as: "Kind[Any] | None" = None  # of one of all these: the kind that declares it
    # Versions that clients may know and that are not served: such a body gets a specific error.
    known_versions: tuple[str, ...] = ()
    # Ledger entries for a change of an object (new, old, request), in the same commit.
    records: Callable[[T | None, T | None, Request], Iterable[Fact]] | None = None
    # What is remembered for good of a change (new, old), in the same commit: tombstones.py.
    tombstones: Callable[[T | None, T | None], Iterable[Tombstone]] | None = None
    keeps_dependents: bool = False  # what it owns is deleted with it: `Orphan` is refused
    # Objects that nobody owns, because their deletion is refused: an owner reference is refused.
    refuses_owners: Callable[[T], bool] = lambda _: False
    # Server-side notes, updated when an object is created or changed: stored with the object,
    # deleted with it, and never sent to a client.
    note: Note[T] | None = None

    @cached_property
    def served(self) -> tuple["Kind[Any]", ...]:
        """This kind in each of its versions and groups, the stored one first."""
        same = replace(self, versions=(), beside=(), stored_as=self)
        return (
            self,
            *(replace(same, version=version) for version in self.versions),
            *(replace(kind, stored_as=self) for kind in self.beside),
        )

    @cached_property
    def stored(self) -> "Kind[Any]":
        """This kind in the version in which its objects are stored."""
        return self.stored_as or self

    @cached_property
    def is_renamed(self) -> bool:
        """Whether its fields have other names than the stored ones."""
        return self.type is not self.stored.type

    @cached_property
    def api_versions(self) -> frozenset[str]:
        """Every apiVersion under which the same objects are served with the same names."""
        return frozenset(k.api_version for k in self.stored.served if k.type is self.type)

    @cached_property
    def name(self) -> str:
        published: str = vars(self.type).get("published_as", "")
        return published.rpartition(".")[2] or self.type.__name__

    @cached_property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @cached_property
    def singular(self) -> str:
        return self.name.lower()

    @cached_property
    def namespaced(self) -> bool:
        return self.scope is Scope.NAMESPACED

    @cached_property
    def schema(self) -> Fields:
        return schema_of(self.type)

    @cached_property
    def confidential(self) -> bool:
        """Whether a field is confidential: then no audit record and no error shows its content."""
        return any(confidential_paths(self.schema))

    @cached_property
    def decoder(self) -> Decoder[T]:
        return Decoder(self.type)

    @cached_property
    def key_prefix(self) -> str:
        """The store prefix of this kind's objects; independent of naming and version."""
        word = self.stored.group.partition(".")[0]
        return f"{word}/{self.plural}/" if word else f"core/{self.plural}/"

    @cached_property
    def unset(self) -> Mapping[str, Unset]:
        """The sparse fields. To select by one, an object that lacks it need not be decoded.

        A missing field has its default value. An object whose bytes contain the name anywhere is
        decoded all the same.
        """
        if self.is_renamed:
            return {}  # the bytes have the names of the stored kind
        return {
            path: Unset(
                b'"%b"' % path.rpartition(".")[2].encode(), self.selectable[path](self.type())
            )
            for path in self.sparse
        }

    @cached_property
    def head(self) -> bytes:
        """The first bytes of every encoded object of this kind, up to its metadata."""
        return b'{"kind":"%s","apiVersion":"%s",' % (self.name.encode(), self.api_version.encode())

    @cached_property
    def stored_head(self) -> bytes:
        """The first bytes of a stored value of this program, without notes."""
        return self.head + b'"metadata":'

    @cached_property
    def key(self) -> Callable[[str, str], str]:
        """The store key of an object, by namespace and name."""
        return (self.key_prefix + ("{0}/{1}" if self.namespaced else "{1}")).format

    def about(self, name: str = "") -> ErrorSubject:
        """This resource in an error: `certificatesigningrequests.certificates.orch.io "x"`."""
        return ErrorSubject(self.group, self.plural, name)

    def about_kind(self, name: str = "") -> ErrorSubject:
        """This kind in a validation error: `CertificateSigningRequest.certificates.orch.io "x"`."""
        return ErrorSubject(self.stored.group, self.name, name)

    def target(
        self, verb: str, name: str = "", *, namespace: str = "", subresource: str = ""
    ) -> Target:
        """What authorization decides about: a verb on this resource."""
        return Target(
            verb=verb,
            is_resource=True,
            group=self.group,
            version=self.version,
            resource=self.plural,
            subresource=subresource,
            namespace=namespace,
            name=name,
        )

    @cached_property
    def endpoint(self) -> Callable[[str], Endpoint | None]:
        """Find an endpoint by its name."""
        return {endpoint.name: endpoint for endpoint in self.endpoints}.get
