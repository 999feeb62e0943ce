"""Record the certificates that clusters issue, for the inventory and for revocation.

Reads   clusters; the Secret of each with a kubeconfig; the certificate requests of each cluster
Writes  an IssuedCertificate for each certificate that a client authority of the cluster issued;
        the condition Inventoried; the Secret, when the token in it is renewed
Never   changes anything in a cluster; uses a Secret that belongs to another Cluster

A cluster is listed and watched, and listed again every hour and after any failure: what is recorded
depends on its requests, not on events. It removes requests some time after they were decided, so
certificates are missed that it issued while no controller ran for that long.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

import msgspec

from orchid.features.certificates.kinds.certificate_signing_request import CertificateSigningRequest
from orchid.features.certificates.kinds.issued_certificate import (
    IssuedCertificate,
    IssuedCertificateSpec,
    IssuedFor,
    Requester,
    cluster_record_name,
)
from orchid.features.clusters.connection import ClusterConnection, cluster_client
from orchid.features.clusters.controllers.cluster_token import renewal, successor, token_in
from orchid.features.clusters.kinds.cluster import (
    CLOCKS_DIFFER,
    INVENTORIED,
    Cluster,
    inventory_secret,
    is_of,
)
from orchid.features.objects.kinds.secret import Secret
from orchid.kernel.base.clock import Clock
from orchid.kernel.base.telemetry import failure_story
from orchid.kernel.client.client import DELETED, Client, ListSelection, WatchedChange
from orchid.kernel.credentials.refusals import CertificateRefused, Refusal, library_errors_as
from orchid.kernel.credentials.x509 import certificates
from orchid.kernel.credentials.x509.issued_facts import IssuedFacts, read_issued
from orchid.kernel.credentials.x509.trust.verified_chain import has_issued
from orchid.kernel.outbound.failures import AnswerRefused, CallFailed
from orchid.kernel.outbound.remote import InvalidRemote
from orchid.kernel.runtime.context import ControllerContext
from orchid.kernel.runtime.declaration import ControllerDeclaration
from orchid.kernel.runtime.events import EventRecorder
from orchid.kernel.runtime.loop import Running
from orchid.kernel.wire.codec import yaml_text
from orchid.kernel.wire.conditions import FALSE, TRUE, Condition, with_conditions
from orchid.kernel.wire.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Expired,
    Forbidden,
    Invalid,
    NotFound,
    TooLarge,
)
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.policy_rules import READ, rule
from orchid.kernel.wire.references import belongs_to
from orchid.kernel.wire.struct import replace

log = logging.getLogger(__name__)

KEY: Final = "kubeconfig"  # in the Secret
LISTED_AGAIN: Final = 3600.0  # seconds
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0  # seconds after a failure
LONGEST_REASON: Final = 1024  # characters of a condition; others write what it quotes
MOST_WARNINGS: Final = 10  # of single certificates, for each time that a cluster is listed
REQUESTS: Final = ListSelection(CertificateSigningRequest)

Connect = Callable[[bytes, str], ClusterConnection]


class CannotRecord(Exception):
    """The certificates of a cluster cannot be recorded; the text says why."""


class RecordClusterCertificates(Running):
    name = "cluster-inventory"

    def __init__(self, client: Client, connect: Connect, clock: Clock, naming: Naming) -> None:
        self._client = client
        self._connect = connect
        self._clock = clock
        self._home = naming.system_namespace

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
                    cluster = event.object
                    is_recorded = event.type != DELETED and cluster.spec.inventory
                    spec = (cluster.metadata.uid, cluster.spec) if is_recorded else None
                    before, task = running.get(cluster.name, (None, None))
                    if spec == before:
                        continue  # only its status has changed
                    if task is not None:
                        task.cancel()
                        del running[cluster.name]
                    if spec is not None:
                        running[cluster.name] = spec, tasks.create_task(self._keep(cluster))

    async def _keep(self, cluster: Cluster) -> None:
        """Record the certificates of one cluster, until cancelled.

        Whatever its API server answers, no exception leaves this task: it would end the others.
        """
        pause = FIRST_PAUSE
        while True:
            try:
                async with asyncio.timeout(LISTED_AGAIN):
                    await self._record_all(cluster)
            except TimeoutError:
                pause = FIRST_PAUSE
                continue
            except Exception as failure:
                problem = _reason(failure)
            log.warning("cluster.not_recorded", extra={"cluster": cluster.name, "why": problem})
            with contextlib.suppress(ApiError, CallFailed):
                await self._report(cluster, FALSE, "CannotRead", problem)
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _record_all(self, cluster: Cluster) -> None:
        secret = await self._secret(cluster)
        where = f"Secret {secret.name}"
        connection = await asyncio.to_thread(self._connect, secret.data[KEY], where)
        await self._renew(secret, connection)
        authorities = _authorities(cluster, self._clock.now())
        listing = _Listing()
        try:
            async with contextlib.aclosing(connection.client.follow(REQUESTS)) as batches:
                async for batch in batches:
                    for event in batch:
                        if event.type != DELETED:
                            await self._record(cluster, authorities, event, listing)
                        await asyncio.sleep(0)  # each is work, and nobody knows how many there are
                    if not batch:
                        await self._report(cluster, TRUE, "Listed", listing.text)
        finally:
            await connection.transport.close()

    async def _secret(self, cluster: Cluster) -> Secret:
        """The Secret with the kubeconfig of a cluster; the author of a Cluster can name any."""
        assert cluster.spec.inventory is not None
        name = cluster.spec.inventory.secret_name
        secret = await self._client.find(Secret, name, self._home)
        if secret is None:
            raise CannotRecord(f"there is no Secret {self._home}/{name}")
        if not (belongs_to(secret, cluster) or _is_earlier(secret, cluster)):
            raise CannotRecord(
                f"the Secret {self._home}/{name} does not belong to this cluster: "
                f"`orchid cluster add {cluster.name} --inventory` stores another"
            )
        if KEY not in secret.data:
            raise CannotRecord(f"the Secret {self._home}/{name} has no key {KEY!r}")
        return secret

    async def _record(
        self,
        cluster: Cluster,
        authorities: list[Any],
        event: WatchedChange[CertificateSigningRequest],
        listing: "_Listing",
    ) -> None:
        """Create the record of a certificate, unless it is there."""
        try:
            request = event.object
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            listing.unread += 1
            return
        facts = _facts(request, authorities)
        if facts is None or facts.not_after <= self._clock.now():
            return
        name = cluster_record_name(cluster.name, facts.sha256)
        if await self._has_record(name, cluster):
            return
        asked, meta = request.spec, request.metadata
        spec = IssuedCertificateSpec(
            signer_name=asked.signer_name,
            cluster=cluster.name,
            cluster_uid=cluster.metadata.uid,
            certificate=facts.data,
            request=IssuedFor(name=meta.name, uid=meta.uid, created=meta.creation_timestamp),
            requester=Requester(username=asked.username, uid=asked.uid, groups=asked.groups),
        )
        try:
            await self._client.create(IssuedCertificate(metadata=ObjectMeta(name=name), spec=spec))
        except AlreadyExists:
            await self._has_record(name, cluster)
        except Forbidden as refusal:
            raise CannotRecord(f"a certificate cannot be recorded: {refusal}") from None
        except (Invalid, TooLarge) as refusal:  # of this one; or the authorities have changed
            listing.unread += 1
            if listing.unread <= MOST_WARNINGS:
                extra = {"cluster": cluster.name, "request": meta.name, "why": str(refusal)}
                log.warning("cluster.certificate_not_recorded", extra=extra)

    async def _has_record(self, name: str, cluster: Cluster) -> bool:
        """Whether a certificate is on record; raises CannotRecord if an earlier cluster has it."""
        record = await self._client.find(IssuedCertificate, name)
        if record is not None and not is_of(record, cluster.metadata):
            raise CannotRecord("records of an earlier cluster of this name are not deleted yet")
        return record is not None

    async def _report(self, cluster: Cluster, status: str, reason: str, message: str) -> None:
        """Set the condition Inventoried, if it differs."""
        with contextlib.suppress(Conflict, NotFound):  # written again with the next list
            current = await self._client.get(Cluster, cluster.name)
            if current.metadata.uid != cluster.metadata.uid:
                return  # it was created again
            condition = Condition(type=INVENTORIED, status=status, reason=reason, message=message)
            reported = with_conditions(current, [condition], self._clock.now())
            if reported != current:
                await self._client.update_status(reported)

    # -- the token ----------------------------------------------------------------------------

    async def _renew(self, secret: Secret, connection: ClusterConnection) -> None:
        """Replace a token of an account of the cluster when half of its lifetime has passed."""
        document, _ = await asyncio.to_thread(yaml_text.load, secret.data[KEY])
        token, now = token_in(document), self._clock.now().timestamp()
        if token is None or not token.is_due(now):
            return
        path, body = renewal(token)
        answer = await connection.transport.send("POST", path, body)
        try:
            document["users"][0]["user"]["token"] = successor(answer, token, now)
        except AnswerRefused as problem:
            extra = {"secret": secret.name, "status": answer.status, "why": str(problem)}
            log.warning("cluster.token_not_renewed", extra=extra)
            return
        changed = {**secret.data, KEY: yaml_text.dump(document)}
        await self._client.update(replace(secret, data=changed))


class _Listing:
    """One list of the requests of a cluster, and the watch after it."""

    def __init__(self) -> None:
        self.unread = 0  # requests or certificates that could not be read or recorded

    @property
    def text(self) -> str:
        if not self.unread:
            return "Its certificates are recorded."
        return f"Its certificates are recorded, except {self.unread} that cannot be read."


def _reason(failure: Exception) -> str:
    """Why a cluster cannot be recorded, for its condition and the log."""
    if isinstance(failure, CannotRecord):
        return str(failure)
    if not isinstance(failure, ApiError | CallFailed | InvalidRemote | Refusal):
        log.error("cluster.recording_failed", extra={"story": failure_story(failure)})
        return f"its certificate requests cannot be read: {type(failure).__name__}"
    text = f"its certificate requests cannot be read: {failure}"
    return "".join(
        character if character.isprintable() else "?" for character in text[:LONGEST_REASON]
    )


def _is_earlier(secret: Secret, cluster: Cluster) -> bool:
    """Whether an earlier version of Orchid stored a Secret, without an owner, for this cluster.

    Its name and the times of creation decide; `orchid cluster add` stored it just before.
    """
    meta, since = secret.metadata, cluster.metadata.creation_timestamp
    if meta.owner_references or meta.name != inventory_secret(cluster.name):
        return False
    created = meta.creation_timestamp
    return bool(created and since and created + CLOCKS_DIFFER >= since)


def _authorities(cluster: Cluster, now: datetime) -> list[Any]:
    text = cluster.spec.client_authorities
    found = certificates.parse_blocks(text) if text else []
    return [one for one in found if one.not_valid_after_utc > now]


def _facts(request: CertificateSigningRequest, authorities: list[Any]) -> IssuedFacts | None:
    """The certificate of a request, if a client authority of the cluster issued it."""
    if not request.status.certificate:
        return None
    try:
        with library_errors_as(CertificateRefused, "x509: certificate cannot be read"):
            facts = read_issued(request.status.certificate)
            issued = any(has_issued(authority, facts.certificate) for authority in authorities)
    except Refusal:
        return None
    return facts if issued else None


def build(client: Client, context: ControllerContext, events: EventRecorder) -> Running | None:
    return RecordClusterCertificates(client, cluster_client, context.clock, context.naming)


CONTROLLER = ControllerDeclaration(
    name="cluster-inventory",
    long_name="cluster-inventory-controller",
    account="cluster-inventory",
    # The Secret of each cluster: a Role of `orchid cluster add` for that one.
    rights=lambda naming: (
        rule(READ, naming.identity, ("clusters",)),
        rule(("update",), naming.identity, ("clusters/status",)),
        rule(("create", "get"), naming.identity, ("issuedcertificates",)),
    ),
    build=build,
)
