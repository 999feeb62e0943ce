"""A Pod runs as a service account of its namespace, and gets its token and pull secrets.

Start with `PodAccount.admit`. A new Pod without an account runs as `default`, and one with a
missing account is refused. It gets the account's pull secrets if it has none, and a token volume
unless the Pod, or else the account, declines.

With the annotation for it, an account limits its Pods to the Secrets that it lists, in every field
that can name one (features/objects/kinds/pod/references.py). That applies to updates too, because a
stored Pod may have any field.

A mirror Pod shows what a node runs by itself. It is not changed, and has no account and no Secrets.
"""

import asyncio
import contextlib
from typing import Any, Final, NamedTuple

from orchid.features.accounts.kinds.service_account import DEFAULT_ACCOUNT, ServiceAccount
from orchid.features.objects.kinds.pod.pod import Pod
from orchid.features.objects.kinds.pod.references import REFERENCE_PATHS, items, leaves, located
from orchid.features.objects.policies.namespace_lifecycle import Ensure
from orchid.kernel.engine.cache.entry import Entry
from orchid.kernel.engine.cache.feed import Feed
from orchid.kernel.engine.interfaces import AdmissionPolicy, Randomness
from orchid.kernel.engine.kind import Kind
from orchid.kernel.engine.request import Request
from orchid.kernel.wire.errors import ErrorSubject, Forbidden
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.struct import replace
from orchid.kernel.wire.text import quote

PATIENCE: Final = 1.5  # seconds; in a new namespace the default account is still being created
TOKEN_SECONDS: Final = 3607  # an unusual number that identifies tokens of Pods
READABLE: Final = 0o644
ON: Final = ("1", "t", "T", "TRUE", "true", "True")
PULL_SECRETS: Final = "imagePullSecrets"


class PodAccount(AdmissionPolicy):
    admits = (Pod,)

    def __init__(
        self, naming: Naming, feed: Feed, randomness: Randomness, ensure: Ensure | None = None
    ) -> None:
        self._feed = feed
        self._ensure = ensure
        self._accounts = feed.of(ServiceAccount)
        self._random = randomness
        self._mirror = naming.mirror_annotation
        self._limits = naming.mountable_secrets_annotation
        self._prefix = naming.token_volume_prefix
        self._mount_path = naming.token_mount_path
        self._root_ca = naming.root_ca_config_map

    async def admit(self, request: Request, kind: Kind[Any], new: Pod, old: Pod | None) -> Pod:
        before = named_secrets(old) if old is not None else frozenset()
        if request.target.subresource or (old is not None and named_secrets(new) <= before):
            return new
        about = kind.about(new.name or new.metadata.generate_name)
        if self._mirror in new.metadata.annotations:
            if refusal := mirror_refusal(new):
                raise Forbidden(about, refusal)
            return new
        if old is None and not new.account:
            new = new.running_as(DEFAULT_ACCOUNT)
        account = await self._account(request, new.account)
        if account is None:
            text = (
                f"error looking up service account {new.namespace}/{new.account}: "
                f"serviceaccount {quote(new.account)} not found"
            )
            raise Forbidden(about, text)
        if old is None:
            new = replace(new, spec=self._equipped(new.spec, account))
        if account.metadata.annotations.get(self._limits) in ON:
            refuse_unlisted(about, account, new, before)
        return new

    # -- the account -------------------------------------------------------------------------

    async def _account(self, request: Request, name: str) -> ServiceAccount | None:
        await self._feed.fresh()
        namespace = request.namespace
        entry = self._accounts.get(namespace, name)
        if entry is None and name == DEFAULT_ACCOUNT:
            if self._ensure and not request.options.dry_run:
                await self._ensure(namespace)  # the default account is created with it
            entry = await self._awaited(namespace, name)
        return entry.object if entry else None

    async def _awaited(self, namespace: str, name: str) -> Entry[ServiceAccount] | None:
        changed = asyncio.Event()
        self._accounts.listen(changed, lambda changes: changed.set())
        await asyncio.sleep(0)  # from here on there is a task, which asyncio.timeout needs
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PATIENCE):
                    while self._accounts.get(namespace, name) is None:
                        changed.clear()
                        await changed.wait()
        finally:
            self._accounts.forget(changed)
        return self._accounts.get(namespace, name)

    # -- token and pull secrets --------------------------------------------------------------

    def _equipped(self, spec: dict[str, Any], account: ServiceAccount) -> dict[str, Any]:
        """The spec with the token volume and the account's pull secrets."""
        if wants_token(spec, account):
            spec = self._with_token(spec)
        if not spec.get(PULL_SECRETS) and account.image_pull_secrets:
            names = [{"name": secret.name} for secret in account.image_pull_secrets]
            spec = {**spec, PULL_SECRETS: names}
        return spec

    def _with_token(self, spec: dict[str, Any]) -> dict[str, Any]:
        """Mount the volume into each container that has no mount at that path yet."""
        names = [str(volume.get("name", "")) for volume in items(spec.get("volumes"))]
        existing = next((name for name in names if name.startswith(self._prefix)), None)
        name = existing or self._prefix + self._random.suffix()
        mounted = {
            sort: [self._mounting(container, name) for container in spec[sort]]
            for sort in ("initContainers", "containers")
            if spec.get(sort)
        }
        if all(mounted[sort] == spec[sort] for sort in mounted):
            return spec
        volumes = spec.get("volumes") or []
        if existing is None:
            volumes = [*volumes, {"name": name, "projected": self._token_volume()}]
        return {**spec, "volumes": volumes, **mounted}

    def _mounting(self, container: dict[str, Any], volume: str) -> dict[str, Any]:
        mounts = container.get("volumeMounts") or []
        if any(mount.get("mountPath") == self._mount_path for mount in items(mounts)):
            return container
        mount = {"name": volume, "readOnly": True, "mountPath": self._mount_path}
        return {**container, "volumeMounts": [*mounts, mount]}

    def _token_volume(self) -> dict[str, Any]:
        """The token, the server's CA bundle, and the namespace."""
        namespace = {"apiVersion": "v1", "fieldPath": "metadata.namespace"}
        ca = {"key": "ca.crt", "path": "ca.crt"}
        return {
            "sources": [
                {"serviceAccountToken": {"expirationSeconds": TOKEN_SECONDS, "path": "token"}},
                {"configMap": {"name": self._root_ca, "items": [ca]}},
                {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": namespace}]}},
            ],
            "defaultMode": READABLE,
        }


def wants_token(spec: dict[str, Any], account: ServiceAccount) -> bool:
    """The Pod decides, else its account; the default is True."""
    own = spec.get("automountServiceAccountToken")
    given = account.automount_service_account_token if own is None else own
    return given is None or bool(given)


class NamedSecret(NamedTuple):
    """A Secret that a Pod names; those for images are in a list of their own."""

    pulls: bool
    name: str


def named_secrets(pod: Pod) -> frozenset[NamedSecret]:
    return frozenset(
        NamedSecret(path[0] == PULL_SECRETS, name)
        for path in REFERENCE_PATHS["secrets"]
        for name in leaves(pod.spec, path)
    )


def refuse_unlisted(
    about: ErrorSubject, account: ServiceAccount, pod: Pod, before: frozenset[NamedSecret]
) -> None:
    """Refuse the first Secret that the account does not list and the Pod did not name before."""
    listed = {NamedSecret(True, secret.name) for secret in account.image_pull_secrets}
    listed |= {NamedSecret(False, secret.name) for secret in account.secrets}
    unlisted = named_secrets(pod) - before - listed
    for path in REFERENCE_PATHS["secrets"] if unlisted else ():
        pulls = path[0] == PULL_SECRETS
        for field, name in located(pod.spec, path):
            if NamedSecret(pulls, name) in unlisted:
                sort = "imagePullSecret" if pulls else "secret"
                raise Forbidden(
                    about,
                    f"{field}={quote(name)} is not allowed because service account {account.name} "
                    f"does not reference that {sort}",
                )


def mirror_refusal(pod: Pod) -> str:
    if pod.account:
        return "a mirror pod may not reference service accounts"
    if named_secrets(pod):
        return "a mirror pod may not reference secrets"
    for volume in items(pod.spec.get("volumes")):
        projected = volume.get("projected")
        for source in items(projected.get("sources") if isinstance(projected, dict) else None):
            if source.get("serviceAccountToken") is not None:
                return "a mirror pod may not use ServiceAccountToken volume projections"
    return ""
