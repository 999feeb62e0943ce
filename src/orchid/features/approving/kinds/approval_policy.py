"""ApprovalPolicy: rules that approve certificate requests without a person.

    main      the terms (features/approval/terms.py), compiled on every write          Rules
    status    the condition Ready                                             ConditionRules

A policy that does not compile is refused, so a stored policy is Ready. The approving controller
sets Ready to False if it cannot use the policy later (`with_usability`). The evaluation of terms
is in approval/, the controller in features/approving/controllers/approve_requests.py.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Annotated, Final

from msgspec import field

from orchid.features.approval.compiled import CompiledPolicy
from orchid.features.approval.term_errors import term_errors, term_warnings
from orchid.features.approval.terms import LEAVE, ApprovalPolicySpec
from orchid.kernel.engine.condition_rules import COMPILED, CompiledRules, ConditionRules
from orchid.kernel.engine.kind import Column, Endpoint, Kind, Scope
from orchid.kernel.engine.request import Request
from orchid.kernel.engine.tables import AGE, NAME
from orchid.kernel.expressions.cel import Compiler
from orchid.kernel.wire.conditions import FALSE, READY, Condition, is_true, with_conditions
from orchid.kernel.wire.fields import FieldError, Path
from orchid.kernel.wire.meta import Object
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.struct import Wire, describe, merge_key, proto
from orchid.kernel.wire.user import MASTERS

SPEC: Final = Path() / "spec"
NOT_READY: Final = "the policy is not Ready"
WRITER, IMPERSONATOR = "writer", "impersonator"  # notes of the last change of the spec
CANNOT_COMPILE: Final = "CannotCompile"
TOO_SLOW: Final = "TooSlow"


class ApprovalPolicyStatus(Wire):
    """Whether the policy is in force."""

    conditions: Annotated[
        tuple[Condition, ...],
        merge_key("type"),
        proto(1),
        describe("Ready: the policy is in force."),
    ] = ()


class ApprovalPolicy(Object):
    """Approves certificate requests by rule. A requester needs the verb `use` on it."""

    spec: Annotated[
        ApprovalPolicySpec,
        proto(2),
        describe("Selected requests and allowed values.", required=True),
    ] = field(default_factory=ApprovalPolicySpec)
    status: Annotated[ApprovalPolicyStatus, proto(3), describe("The conditions.")] = field(
        default_factory=ApprovalPolicyStatus
    )

    @property
    def is_ready(self) -> bool:
        return is_true(self.status.conditions, READY)


class Rules(CompiledRules[ApprovalPolicy]):
    """The main endpoint: terms that compile make the policy Ready."""

    def __init__(self) -> None:
        self._compiler = Compiler()

    def validate(self, new: ApprovalPolicy) -> Iterator[FieldError]:
        yield from term_errors(new.spec, SPEC, self._compiler)

    def warnings(self, new: ApprovalPolicy, old: ApprovalPolicy | None) -> Iterator[str]:
        if old is None or new.spec != old.spec:
            yield from term_warnings(new.spec, SPEC)


def declare(naming: Naming) -> Kind[ApprovalPolicy]:
    return Kind(
        type=ApprovalPolicy,
        group=naming.identity,
        version="v1alpha1",
        versions=("v1",),
        plural="approvalpolicies",
        short_names=("ap",),
        scope=Scope.CLUSTER,
        counts_generation=True,
        rules=Rules(),
        writes=("metadata", "spec"),
        note=writers,
        columns=(
            NAME,
            Column(
                "Signers",
                lambda policy, now: ",".join(policy.spec.signer_names) or "<any>",
                description="Signers of the selected requests.",
            ),
            Column(
                "Otherwise",
                lambda policy, now: policy.spec.otherwise or LEAVE,
                description="Effect on a request that no policy allows.",
            ),
            Column(
                "Ready",
                lambda policy, now: str(policy.is_ready),
                description="Whether the policy is in force.",
            ),
            AGE,
        ),
        endpoints=(Endpoint("status", writes=("metadata", "status"), rules=ConditionRules()),),
    )


def writers(
    new: ApprovalPolicy, old: ApprovalPolicy | None, request: Request
) -> dict[str, str] | None:
    """Notes for four eyes: who last wrote the spec, and their impersonator.

    Members of system:masters are exempt from four eyes, so their names are left out.
    """
    if old is not None and new.spec == old.spec:
        return None
    actors = {WRITER: request.user, IMPERSONATOR: request.real_user}
    return {
        word: actor.username if actor and MASTERS not in actor.groups else ""
        for word, actor in actors.items()
    }


def writers_in(notes: Mapping[str, str]) -> frozenset[str]:
    """Users who last wrote the spec of a policy, from its notes."""
    return frozenset(filter(None, (notes.get(WRITER), notes.get(IMPERSONATOR))))


def with_usability(policy: ApprovalPolicy, problem: str, now: datetime) -> ApprovalPolicy:
    """Set Ready from the compile result; leave a condition set by others alone."""
    if problem and policy.is_ready:
        return _unready(policy, CANNOT_COMPILE, problem, now)
    ours = any(condition.reason == CANNOT_COMPILE for condition in policy.status.conditions)
    if not problem and ours:
        return with_conditions(policy, [COMPILED], now)
    return policy


def too_slow(policy: ApprovalPolicy, problem: str, now: datetime) -> ApprovalPolicy:
    """The policy after its rules exceeded their limits: not Ready until its spec changes."""
    text = f"The policy is not in force: {problem}. Change its spec."
    return _unready(policy, TOO_SLOW, text, now)


def _unready(policy: ApprovalPolicy, reason: str, message: str, now: datetime) -> ApprovalPolicy:
    unready = Condition(type=READY, status=FALSE, reason=reason, message=message)
    return with_conditions(policy, [unready], now)


def compiled(policy: ApprovalPolicy, compiler: Compiler) -> CompiledPolicy:
    """The compiled policy; a policy that is not Ready only has its selection."""
    meta, problem = policy.metadata, "" if policy.is_ready else NOT_READY
    return CompiledPolicy(meta.name, meta.resource_version, policy.spec, compiler, problem)
