"""RoleBinding and ClusterRoleBinding: subjects of a role, in one namespace or everywhere.

Start with `Subject` and `RoleRef`. A roleRef is immutable: with another role, the old subjects
would get rights that were not granted to them. That users cannot bind a role with more rights than
they hold is an admission question: see features/rights/policies/role_escalation.py.
"""

from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Final, TypeVar

from msgspec import field

from orchid.kernel.engine.kind import Column, Kind, Scope
from orchid.kernel.engine.strategy import Strategy
from orchid.kernel.wire.fields import FieldError, Path, invalid, required, unsupported
from orchid.kernel.wire.meta import Object
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.rules.names import path_segment_errors, subdomain_errors
from orchid.kernel.wire.struct import Wire, describe, proto, replace
from orchid.kernel.wire.text import age

USER: Final = "User"
GROUP: Final = "Group"
SERVICE_ACCOUNT: Final = "ServiceAccount"

SUBJECTS = Path() / "subjects"
ROLE_REF = Path() / "roleRef"


class Subject(Wire):
    """A user or a group by name, or a service account by namespace and name."""

    atomic = True

    kind: Annotated[str, proto(1), describe("User, Group or ServiceAccount.")] = field(
        default_factory=str
    )
    api_group: Annotated[
        str, proto(2), describe("The group of the kind; empty for a ServiceAccount.")
    ] = ""
    name: Annotated[str, proto(3), describe("The name of the user, group or account.")] = field(
        default_factory=str
    )
    namespace: Annotated[str, proto(4), describe("The namespace of a ServiceAccount.")] = ""


class RoleRef(Wire):
    """A reference to a Role in the same namespace or to a ClusterRole."""

    atomic = True

    api_group: Annotated[str, proto(1), describe("The group of the role.")] = field(
        default_factory=str
    )
    kind: Annotated[str, proto(2), describe("Role or ClusterRole.")] = field(default_factory=str)
    name: Annotated[str, proto(3), describe("The name of the role.")] = field(default_factory=str)


class RoleBinding(Object):
    """Subjects of a role in one namespace."""

    subjects: Annotated[tuple[Subject, ...], proto(2), describe("The subjects.")] = ()
    role_ref: Annotated[RoleRef, proto(3), describe("The role. Immutable.", required=True)] = field(
        default_factory=RoleRef
    )


class ClusterRoleBinding(Object):
    """Subjects of a role everywhere."""

    subjects: Annotated[tuple[Subject, ...], proto(2), describe("The subjects.")] = ()
    role_ref: Annotated[RoleRef, proto(3), describe("The role. Immutable.", required=True)] = field(
        default_factory=RoleRef
    )


Binding = RoleBinding | ClusterRoleBinding
B = TypeVar("B", RoleBinding, ClusterRoleBinding)


class Rules(Strategy[B]):
    """The rules of both kinds; they differ in the allowed roles."""

    def __init__(self, naming: Naming, *, namespaced: bool) -> None:
        self._group = naming.rbac
        self._namespaced = namespaced
        self._role_kinds = ("Role", "ClusterRole") if namespaced else ("ClusterRole",)

    def name_errors(self, name: str, prefix: bool) -> Iterable[str]:
        return path_segment_errors(name, prefix)

    def validate(self, new: B) -> Iterator[FieldError]:
        yield from self._role_ref_errors(new.role_ref)
        for index, subject in enumerate(new.subjects):
            yield from self._subject_errors(subject, SUBJECTS[index])

    def validate_update(self, new: B, old: B) -> Iterator[FieldError]:
        yield from self.validate(new)
        if new.role_ref != old.role_ref:
            yield invalid(ROLE_REF, capitalised(new.role_ref), "cannot change roleRef")

    def _role_ref_errors(self, role: RoleRef) -> Iterator[FieldError]:
        if role.api_group != self._group:
            yield unsupported(ROLE_REF / "apiGroup", role.api_group, (self._group,))
        if role.kind not in self._role_kinds:
            yield unsupported(ROLE_REF / "kind", role.kind, self._role_kinds)
        if not role.name:
            yield required(ROLE_REF / "name")
        for text in path_segment_errors(role.name):
            yield invalid(ROLE_REF / "name", role.name, text)

    def _subject_errors(self, subject: Subject, path: Path) -> Iterator[FieldError]:
        if not subject.name:
            yield required(path / "name")
        if subject.kind == SERVICE_ACCOUNT:
            yield from self._account_errors(subject, path)
        elif subject.kind not in (USER, GROUP):
            yield unsupported(path / "kind", subject.kind, (SERVICE_ACCOUNT, USER, GROUP))
        elif subject.api_group != self._group:
            yield unsupported(path / "apiGroup", subject.api_group, (self._group,))

    def _account_errors(self, subject: Subject, path: Path) -> Iterator[FieldError]:
        if subject.name:
            for text in subdomain_errors(subject.name):
                yield invalid(path / "name", subject.name, text)
        if subject.api_group:
            yield unsupported(path / "apiGroup", subject.api_group, ("",))
        if not self._namespaced and not subject.namespace:
            yield required(path / "namespace")


def declare(naming: Naming) -> tuple[Kind[RoleBinding], Kind[ClusterRoleBinding]]:
    group = naming.rbac
    binding = Kind(
        type=RoleBinding,
        group=group,
        version="v1",
        known_versions=("v1alpha1", "v1beta1"),
        plural="rolebindings",
        scope=Scope.NAMESPACED,
        creates_on_update=True,
        rules=Rules[RoleBinding](naming, namespaced=True),
        columns=COLUMNS,
        defaults=lambda sent: with_groups(sent, group),
    )
    cluster_binding = Kind(
        type=ClusterRoleBinding,
        group=group,
        version="v1",
        known_versions=("v1alpha1", "v1beta1"),
        plural="clusterrolebindings",
        scope=Scope.CLUSTER,
        creates_on_update=True,
        rules=Rules[ClusterRoleBinding](naming, namespaced=False),
        columns=COLUMNS,
        defaults=lambda sent: with_groups(sent, group),
    )
    return binding, cluster_binding


def with_groups(sent: B, group: str) -> B:
    """Fill in the API group of the role, users and groups where it is missing."""
    role = sent.role_ref
    if not role.api_group:
        role = replace(role, api_group=group)
    subjects = tuple(
        replace(subject, api_group=group)
        if not subject.api_group and subject.kind in (USER, GROUP)
        else subject
        for subject in sent.subjects
    )
    return replace(sent, role_ref=role, subjects=subjects)


def capitalised(role: RoleRef) -> dict[str, str]:
    """A roleRef as Kubernetes prints it in an error."""
    return {"APIGroup": role.api_group, "Kind": role.kind, "Name": role.name}


def names_of(binding: Any, kind: str) -> str:
    """The subjects of one kind, for a table cell."""
    return ", ".join(
        f"{subject.namespace}/{subject.name}"
        if subject.namespace and kind == SERVICE_ACCOUNT
        else subject.name
        for subject in binding.subjects
        if subject.kind == kind
    )


COLUMNS = (
    Column("Name", lambda binding, now: binding.name, format="name", description="Its name."),
    Column(
        "Role",
        lambda binding, now: f"{binding.role_ref.kind}/{binding.role_ref.name}",
        description="The role that its subjects hold.",
    ),
    Column(
        "Age",
        lambda binding, now: age(binding.metadata.creation_timestamp, now),
        description="How long ago the binding was created.",
    ),
    Column(
        "Users",
        lambda binding, now: names_of(binding, USER),
        description="The users that hold the role.",
        priority=1,
    ),
    Column(
        "Groups",
        lambda binding, now: names_of(binding, GROUP),
        description="The groups that hold the role.",
        priority=1,
    ),
    Column(
        "ServiceAccounts",
        lambda binding, now: names_of(binding, SERVICE_ACCOUNT),
        description="The service accounts that hold the role.",
        priority=1,
    ),
)
