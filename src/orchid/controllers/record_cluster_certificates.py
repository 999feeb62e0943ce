"""Record the certificates that clusters issue, for the inventory and for revocation.

Reads   clusters; the Secret of each with a kubeconfig; the certificate requests of each cluster
Writes  an IssuedCertificate for each certificate that a client authority of the cluster issued;
        the condition Inventoried; the Secret, when the token in it is renewed
Never   changes anything in a cluster

A cluster is listed and watched, and listed again every hour and after any failure: what is recorded
depends on its requests, not on events. It removes requests some time after they were decided, so
certificates are missed that it issued while no controller ran for that long.
"""

import asyncio
import base64
import binascii
import contextlib
import json
import logging
from collections.abc import Callable
from typing import Any, Final

import msgspec

from orchid.client.client import DELETED, Client, ListSelection
from orchid.clock import Clock
from orchid.controllers.runtime.context import ClusterConnection, ControllerContext
from orchid.controllers.runtime.declaration import ControllerDeclaration
from orchid.controllers.runtime.events import EventRecorder
from orchid.controllers.runtime.loop import Running
from orchid.credentials.refusals import CertificateRefused, Refusal, library_errors_as
from orchid.credentials.x509 import certificates
from orchid.credentials.x509.issued_facts import IssuedFacts, read_issued
from orchid.credentials.x509.verified_chain import has_issued
from orchid.kinds.certificate_signing_request import CertificateSigningRequest
from orchid.kinds.cluster import INVENTORIED, Cluster
from orchid.kinds.issued_certificate import (
    IssuedCertificate,
    IssuedCertificateSpec,
    IssuedFor,
    Requester,
    cluster_record_name,
)
from orchid.kinds.role import READ, rule
from orchid.kinds.secret import Secret
from orchid.outbound.answer import Answer
from orchid.outbound.failures import CallFailed
from orchid.outbound.remote import InvalidRemote
from orchid.wire.codec import yaml_text
from orchid.wire.conditions import FALSE, TRUE, Condition, with_conditions
from orchid.wire.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Expired,
    Invalid,
    NotFound,
    TooLarge,
)
from orchid.wire.meta import ObjectMeta
from orchid.wire.naming import KUBERNETES, Naming
from orchid.wire.struct import replace

log = logging.getLogger(__name__)

KEY: Final = "kubeconfig"  # in the Secret
LISTED_AGAIN: Final = 3600.0  # seconds
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0  # seconds after a failure
RENEWED_AFTER: Final = 0.5  # of the lifetime of a token
ACCOUNT: Final = "system:serviceaccount:"
CREATED: Final = 201
REQUESTS: Final = ListSelection(CertificateSigningRequest)

Connect = Callable[[bytes, str], ClusterConnection]


class CannotRecord(Exception):
    """The requests of a cluster cannot be read; the text says why."""


class RecordClusterCertificates(Running):
    name = "cluster-inventory"

    def __init__(self, client: Client, connect: Connect, clock: Clock, names: Naming) -> None:
        self._client = client
        self._connect = connect
        self._clock = clock
        self._home = names.system_namespace

    async def run(self) -> None:
        """Follow the clusters; one task for each that has an inventory."""
        pause = FIRST_PAUSE
        while True:
            try:
                async with asyncio.TaskGroup() as tasks:
                    await self._follow_clusters(tasks)
            except* Expired:
                pause = FIRST_PAUSE
            except* (ApiError, CallFailed) as problems:
                extra = {"controller": self.name, "why": str(problems.exceptions[0])}
                log.warning("controller.lost", extra=extra)
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _follow_clusters(self, tasks: asyncio.TaskGroup) -> None:
        running: dict[str, tuple[object, asyncio.Task[None]]] = {}
        async with contextlib.aclosing(self._client.follow(ListSelection(Cluster))) as batches:
            async for batch in batches:
                for event in batch:
                    found = event.object
                    wanted = found.spec if event.type != DELETED and found.spec.inventory else None
                    before, task = running.get(found.name, (None, None))
                    if wanted == before:
                        continue  # only its status has changed
                    if task is not None:
                        task.cancel()
                        del running[found.name]
                    if wanted is not None:
                        running[found.name] = wanted, tasks.create_task(self._keep(found))

    async def _keep(self, cluster: Cluster) -> None:
        """Record the certificates of one cluster, until cancelled."""
        pause = FIRST_PAUSE
        while True:
            problem = ""
            try:
                async with asyncio.timeout(LISTED_AGAIN):
                    await self._record_all(cluster)
            except TimeoutError:
                pause = FIRST_PAUSE
            except CannotRecord as failure:
                problem = str(failure)
            except (ApiError, CallFailed, InvalidRemote, msgspec.DecodeError) as failure:
                problem = f"its certificate requests cannot be read: {failure}"
            if problem:
                log.warning("cluster.not_recorded", extra={"cluster": cluster.name, "why": problem})
                await self._report(cluster.name, FALSE, "CannotRead", problem)
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)

    async def _record_all(self, cluster: Cluster) -> None:
        assert cluster.spec.inventory is not None
        secret_name = cluster.spec.inventory.secret_name
        try:
            secret = await self._client.get(Secret, secret_name, self._home)
        except NotFound:
            raise CannotRecord(f"there is no Secret {self._home}/{secret_name}") from None
        if KEY not in secret.data:
            raise CannotRecord(f"the Secret {self._home}/{secret_name} has no key {KEY!r}")
        connection = self._connect(secret.data[KEY], f"Secret {secret_name}")
        await self._renew(secret, connection)
        authorities = _authorities(cluster)
        try:
            async with contextlib.aclosing(connection.client.follow(REQUESTS)) as batches:
                async for batch in batches:
                    for event in batch:
                        if event.type != DELETED:
                            await self._record(cluster.name, authorities, event.object)
                    if not batch:
                        text = "Its certificates are recorded."
                        await self._report(cluster.name, TRUE, "Listed", text)
        finally:
            await connection.transport.close()

    async def _record(
        self, cluster: str, authorities: list[Any], request: CertificateSigningRequest
    ) -> None:
        """Create the record of a certificate, unless it is there."""
        facts = _facts(request, authorities)
        if facts is None:
            return
        name = cluster_record_name(cluster, facts.sha256)
        if await self._client.find(IssuedCertificate, name) is not None:
            return
        asked, meta = request.spec, request.metadata
        spec = IssuedCertificateSpec(
            signer_name=asked.signer_name,
            cluster=cluster,
            certificate=facts.data,
            request=IssuedFor(name=meta.name, uid=meta.uid, created=meta.creation_timestamp),
            requester=Requester(username=asked.username, uid=asked.uid, groups=asked.groups),
        )
        try:
            await self._client.create(IssuedCertificate(metadata=ObjectMeta(name=name), spec=spec))
        except AlreadyExists:
            return
        except (Invalid, TooLarge) as refusal:  # of this one; or the authorities have changed
            extra = {"cluster": cluster, "request": meta.name, "why": str(refusal)}
            log.warning("cluster.certificate_not_recorded", extra=extra)

    async def _report(self, name: str, status: str, reason: str, message: str) -> None:
        """Set the condition Inventoried, if it differs."""
        with contextlib.suppress(Conflict, NotFound):  # written again with the next list
            found = await self._client.get(Cluster, name)
            condition = Condition(type=INVENTORIED, status=status, reason=reason, message=message)
            reported = with_conditions(found, [condition], self._clock.now())
            if reported != found:
                await self._client.update_status(reported)

    # -- the token ----------------------------------------------------------------------------

    async def _renew(self, secret: Secret, connection: ClusterConnection) -> None:
        """Replace a token of an account of the cluster when half of its lifetime has passed."""
        document = yaml_text.load(secret.data[KEY])[0]
        claims = _claims(document)
        if claims is None:
            return  # a certificate, or a token without an end
        begin, end = claims["iat"], claims["exp"]
        if self._clock.now().timestamp() < begin + RENEWED_AFTER * (end - begin):
            return
        namespace, name = claims["sub"].removeprefix(ACCOUNT).split(":")
        body = {
            "apiVersion": f"{KUBERNETES.authentication}/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": int(end - begin)},
        }
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        answer = await connection.transport.send("POST", path, json.dumps(body).encode())
        token = _issued_token(answer)
        if not token:
            extra = {"secret": secret.name, "status": answer.status}
            log.warning("cluster.token_not_renewed", extra=extra)
            return
        document["users"][0]["user"]["token"] = token
        changed = {**secret.data, KEY: yaml_text.dump(document)}
        await self._client.update(replace(secret, data=changed))


def _issued_token(answer: Answer) -> str:
    """The token in the answer to a TokenRequest; "" if there is none."""
    try:
        token = json.loads(answer.body)["status"]["token"] if answer.status == CREATED else ""
    except (ValueError, KeyError, TypeError):
        return ""
    return token if isinstance(token, str) else ""


def _claims(document: Any) -> dict[str, Any] | None:
    """The claims of the token in a kubeconfig, if it is one of an account, with times."""
    try:
        payload = document["users"][0]["user"]["token"].split(".")[1]
        claims: dict[str, Any] = json.loads(
            base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4))
        )
        _, _, namespace, name = claims["sub"].split(":")
        is_account = claims["sub"].startswith(ACCOUNT) and namespace and name
        has_times = all(isinstance(claims[one], int | float) for one in ("iat", "exp"))
    except (KeyError, IndexError, TypeError, AttributeError, ValueError, binascii.Error):
        return None
    return claims if is_account and has_times else None


def _authorities(cluster: Cluster) -> list[Any]:
    text = cluster.spec.client_authorities
    return certificates.parse_blocks(text) if text else []


def _facts(request: CertificateSigningRequest, authorities: list[Any]) -> IssuedFacts | None:
    """The certificate of a request, if a client authority of the cluster issued it."""
    if not request.status.certificate:
        return None
    try:
        with library_errors_as(CertificateRefused, "x509: certificate cannot be read"):
            facts = read_issued(request.status.certificate)
            issued = any(has_issued(one, facts.certificate) for one in authorities)
    except (Refusal, StopIteration):
        return None
    return facts if issued else None


def build(client: Client, context: ControllerContext, events: EventRecorder) -> Running | None:
    if context.cluster_client is None:
        return None
    return RecordClusterCertificates(client, context.cluster_client, context.clock, context.names)


CONTROLLER = ControllerDeclaration(
    name="cluster-inventory",
    long_name="cluster-inventory-controller",
    account="cluster-inventory",
    # The Secret of each cluster: a Role of `orchid cluster add` for that one.
    rights=lambda names: (
        rule(READ, names.identity, ("clusters",)),
        rule(("update",), names.identity, ("clusters/status",)),
        rule(("create", "get"), names.identity, ("issuedcertificates",)),
    ),
    build=build,
)
