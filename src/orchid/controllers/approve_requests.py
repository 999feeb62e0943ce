"""Approve the certificate requests of nodes, when their requester may ask for that.

Reads   certificatesigningrequests for the node client signer that nobody has decided on
Asks    SubjectAccessReview: may the requester create .../nodeclient, or .../selfnodeclient?
Writes  /approval: the condition Approved
Never   denies, and never approves for another signer; those are a person's to decide
"""

from orchid.client.client import DELETED, Client, ListSelection, WatchedChange
from orchid.controllers.runtime.context import platform_profiles
from orchid.controllers.runtime.declaration import ControllerDeclaration
from orchid.controllers.runtime.events import EventRecorder
from orchid.controllers.runtime.loop import Controller, TryAgain
from orchid.credentials import signing_request
from orchid.credentials.profiles import Profile, Recognition, recognise_node_client
from orchid.credentials.refusals import Refusal
from orchid.kinds.certificate_signing_request import APPROVED, CertificateSigningRequest
from orchid.kinds.role import READ, may_record_events, rule
from orchid.kinds.subject_access_review import (
    ResourceAttributes,
    SubjectAccessReview,
    SubjectAccessReviewSpec,
)
from orchid.wire.naming import Naming


class ApproveRequests(Controller[CertificateSigningRequest]):
    name = "csrapproving"
    workers = 16

    def __init__(
        self, client: Client, profile: Profile, names: Naming, events: EventRecorder
    ) -> None:
        super().__init__(client, ListSelection(CertificateSigningRequest))
        self._profile = profile
        self._names = names
        self._events = events
        self._signer = profile.signer_name.encode()

    def take(self, event: WatchedChange[CertificateSigningRequest]) -> None:
        # What does not even mention our signer is not decoded: there may be thousands of them.
        if event.type == DELETED or self._signer in bytes(event.data):
            super().take(event)

    async def reconcile(self, found: CertificateSigningRequest) -> None:
        if found.is_decided or found.is_issued:
            return
        ways = self._recognised(found)
        for way in ways:
            if await self._may(found, way):
                approved = found.with_condition(APPROVED, "AutoApproved", way.message)
                await self._client.update(approved, "approval")
                self._events.record(self.name, found, "AutoApproved", way.message)
                return
        if ways:
            recognised = " ".join(way.subresource for way in ways)
            raise TryAgain(
                f'recognized csr "{found.name}" as [{recognised}] '
                "but subject access review was not approved"
            )

    def _recognised(self, csr: CertificateSigningRequest) -> list[Recognition]:
        if csr.spec.signer_name != self._profile.signer_name:
            return []
        try:
            request = signing_request.parse_once(csr.spec.request or b"")
        except Refusal:
            return []
        return list(
            recognise_node_client(
                self._profile,
                request,
                csr.spec.usages,
                signer_name=csr.spec.signer_name,
                username=csr.spec.username,
                agent=self._names.agent,
            )
        )

    async def _may(self, csr: CertificateSigningRequest, way: Recognition) -> bool:
        spec = csr.spec
        question = SubjectAccessReview(
            spec=SubjectAccessReviewSpec(
                user=spec.username,
                uid=spec.uid,
                groups=spec.groups,
                extra=spec.extra,
                resource_attributes=ResourceAttributes(
                    verb="create",
                    group=self._names.certificates,
                    version="*",
                    resource="certificatesigningrequests",
                    subresource=way.subresource,
                ),
            )
        )
        return (await self._client.create(question)).status.allowed


CONTROLLER = ControllerDeclaration(
    name="csrapproving",
    long_name="certificatesigningrequest-approving-controller",
    account="csrapproving",
    rights=lambda names: (
        rule(READ, names.certificates, ("certificatesigningrequests",)),
        rule(("update",), names.certificates, ("certificatesigningrequests/approval",)),
        rule(("approve",), names.certificates, ("signers",), names.node_client_signer),
        rule(("create",), names.authorization, ("subjectaccessreviews",)),
        may_record_events(names),
    ),
    build=lambda client, context, events: ApproveRequests(
        client,
        platform_profiles(context.names)[context.names.node_client_signer],
        context.names,
        events,
    ),
)
