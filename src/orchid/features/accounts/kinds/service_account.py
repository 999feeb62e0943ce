"""ServiceAccount: an identity for a workload, named by namespace and name, identified by its uid.

Start with `declare`; the assembly adds the `token` endpoint
(features/accounts/kinds/token_request.py). An account holds no credential: its tokens are issued on
request and never stored. The effects of its fields on Pods are an admission question: see
features/accounts/policies/service_account.py.
"""

from collections.abc import Iterator
from typing import Annotated

from orchid.kernel.engine.kind import Kind, Scope
from orchid.kernel.engine.request import Request
from orchid.kernel.engine.strategy import Strategy
from orchid.kernel.engine.tables import AGE, NAME
from orchid.kernel.wire.meta import Object
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.references import LocalObjectReference, ObjectReference
from orchid.kernel.wire.struct import describe, merge_key, proto, replace

DEFAULT_ACCOUNT = "default"  # for Pods that name no account


class ServiceAccount(Object):
    """An identity for a workload, named by namespace and name."""

    secrets: Annotated[
        tuple[ObjectReference, ...],
        merge_key("name"),
        proto(2),
        describe(
            "Secrets that belong to the account, by name; its Pods may be limited to these. "
            "Tokens need none: they are issued on request."
        ),
    ] = ()
    image_pull_secrets: Annotated[
        tuple[LocalObjectReference, ...],
        proto(3),
        describe("Secrets with which its workloads fetch images."),
    ] = ()
    automount_service_account_token: Annotated[
        bool | None,
        proto(4),
        describe("Whether workloads get a token of this account unless they decline."),
    ] = None


class Rules(Strategy[ServiceAccount]):
    def __init__(self, naming: Naming) -> None:
        self._annotation = naming.mountable_secrets_annotation

    def prepare_for_create(self, new: ServiceAccount, request: Request) -> ServiceAccount:
        return with_secret_names_only(new)

    def prepare_for_update(
        self, new: ServiceAccount, old: ServiceAccount, request: Request
    ) -> ServiceAccount:
        return with_secret_names_only(new)

    def warnings(self, new: ServiceAccount, old: ServiceAccount | None) -> Iterator[str]:
        had_it = old is not None and self._annotation in old.metadata.annotations
        if self._annotation in new.metadata.annotations and not had_it:
            yield (
                f"metadata.annotations[{self._annotation}]: deprecated in v1.32+; "
                "prefer separate namespaces to isolate access to mounted secrets"
            )


def declare(naming: Naming) -> Kind[ServiceAccount]:
    return Kind(
        type=ServiceAccount,
        group="",
        version="v1",
        plural="serviceaccounts",
        scope=Scope.NAMESPACED,
        rules=Rules(naming),
        short_names=("sa",),
        columns=(NAME, AGE),
        answers_deleted_object=True,
    )


def with_secret_names_only(account: ServiceAccount) -> ServiceAccount:
    """Reduce every secret reference to its name: only this namespace is possible."""
    if not account.secrets:
        return account
    named = tuple(ObjectReference(name=secret.name) for secret in account.secrets)
    return account if named == account.secrets else replace(account, secrets=named)
