"""Sign PodCertificateRequests for the platform's signer and for authorities that issue to Pods.

Reads   podcertificaterequests without an outcome; the Pod, the account and the Node of each;
        certificateauthorities, and the Secret with the key of one that is to sign
Writes  /status: Issued with the certificate, or Denied or Failed with the reason
Never   signs for a signer of another party; deletes (clean_pod_requests.py)

There is no approval: the request names a Pod that runs as the account. Not only nodes may create
requests, so Pod, account and Node are read again here and compared by uid. The subject is that of
the account, or for an authority with a trust domain the SPIFFE ID of the account, whatever the stub
says; a stub with contents is denied. While an authority cannot sign,
its requests wait, and an event reports the reason.
"""

import asyncio
import random
from collections.abc import Mapping
from datetime import timedelta
from typing import TypeVar

from orchid.features.accounts.kinds.service_account import ServiceAccount
from orchid.features.approval.platform_signers import pod_profiles
from orchid.features.authorities.kinds.certificate_authority import pod_profile
from orchid.features.certificates.controllers.signing_controller import SigningController
from orchid.features.certificates.kinds.pod_certificate_request import ISSUED, PodCertificateRequest
from orchid.features.objects.kinds.node import Node
from orchid.features.objects.kinds.pod.pod import Pod
from orchid.features.revocation.settings import RevocationSettings
from orchid.kernel.base.clock import Clock
from orchid.kernel.client.client import DELETED, Client, ListSelection, WatchedChange
from orchid.kernel.credentials.authorities.hsm import NO_HSM, KeysOfHsm
from orchid.kernel.credentials.refusals import NotPermitted, Refusal, SigningFailed
from orchid.kernel.credentials.spiffe_ids import account_id
from orchid.kernel.credentials.x509 import certificates, signing_request
from orchid.kernel.credentials.x509.names import DistinguishedName, account_subject
from orchid.kernel.credentials.x509.signing_request import SigningRequest
from orchid.kernel.runtime.context import ControllerContext, Signer
from orchid.kernel.runtime.declaration import ControllerDeclaration
from orchid.kernel.runtime.events import WARNING, EventRecorder
from orchid.kernel.runtime.loop import Running
from orchid.kernel.wire.errors import Forbidden
from orchid.kernel.wire.meta import Object
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.policy_rules import CORE, READ, may_record_events, rule
from orchid.kernel.wire.request_conditions import DENIED, ENDING_CAUSES, FAILED
from orchid.kernel.wire.struct import replace
from orchid.kernel.wire.user import ACCOUNT_PREFIX, groups_of_accounts

# The node requests the next certificate within this part of the life.
REFRESH_FROM, REFRESH_UNTIL = 0.6, 0.7
ObjectT = TypeVar("ObjectT", bound=Object)
BAD_ANNOTATIONS = "InvalidUnverifiedUserAnnotations"
BAD_KEY = "UnsupportedKeyType"


class Denial(Exception):
    """The request is denied, for a reason in one word and in a sentence."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class SignPodRequests(SigningController[PodCertificateRequest]):
    name = "podcertificaterequestsigning"

    def __init__(
        self,
        client: Client,
        naming: Naming,
        *,
        signers: Mapping[str, Signer],
        crl_url: str,
        clock: Clock,
        events: EventRecorder,
        hsm: KeysOfHsm = NO_HSM,
    ) -> None:
        super().__init__(
            client,
            ListSelection(PodCertificateRequest),
            naming,
            signers=signers,
            platform=pod_profiles(naming),
            crl_url=crl_url,
            clock=clock,
            events=events,
            hsm=hsm,
        )
        self._mirror = naming.mirror_annotation

    def take(self, event: WatchedChange[PodCertificateRequest]) -> None:
        request = event.object
        if event.type == DELETED or request.is_settled:
            self.stop_waiting(request)
            self.queue.drop((request.namespace, request.name))
        else:
            super().take(event)

    async def reconcile(self, request: PodCertificateRequest) -> None:
        if request.is_settled:
            return
        signer = await self._signer(request.spec.signer_name)
        if signer is None:
            self.wait_for_authority(request)
            return
        try:
            stub = self._accepted_stub(request, signer)
            await self._refuse_other_objects(request)
            chain = await asyncio.to_thread(self._sign, request, stub, signer)
        except Denial as denial:
            await self._settle(request, DENIED, denial.reason, str(denial))
        except SigningFailed as problem:
            self.report_waiting(request, str(problem))
            raise  # tried again later: the authority may be renewed
        except NotPermitted as refusal:
            await self._settle(request, FAILED, "SignerValidationFailure", str(refusal))
        else:
            await self._issue(request, chain)

    async def _issue(self, request: PodCertificateRequest, chain: bytes) -> None:
        text = f"Issued by {request.spec.signer_name}."
        try:
            await self._settle(self._with_chain(request, chain), ISSUED, ISSUED, text)
        except Forbidden as refusal:
            cause = refusal.cause_among(ENDING_CAUSES)
            if not cause:
                raise
            await self._settle(request, FAILED, cause, str(refusal))

    async def _signer(self, name: str) -> Signer | None:
        """The signer for requests of Pods; None if this server does not sign for it."""
        if name in self._signers:
            return self._signers[name]
        if name in self._platform:
            return await self._stored.signer(name)
        authority = self.authorities.of(name)
        rules = pod_profile(authority) if authority else None
        signer = await self._stored.signer(name) if rules else None
        return replace(signer, profile=rules) if signer and rules else None

    def _accepted_stub(self, request: PodCertificateRequest, signer: Signer) -> SigningRequest:
        if request.spec.unverified_user_annotations:
            keys = ", ".join(sorted(request.spec.unverified_user_annotations))[:1000]
            raise Denial(BAD_ANNOTATIONS, f"the signer knows no annotations: {keys}")
        try:
            stub = signing_request.parse_der_once(request.spec.stub_pkcs10_request or b"")
            signer.profile.refuse_key(stub)
        except Refusal as refusal:
            raise Denial(BAD_KEY, str(refusal)) from None
        if stub.subject.attributes or stub.extension_values:
            text = "the stub must have an empty subject and no extensions"
            raise Denial("StubNotEmpty", text)
        return stub

    async def _refuse_other_objects(self, request: PodCertificateRequest) -> None:
        """Raise Denial unless Pod, account and Node exist as named and belong together."""
        spec, namespace = request.spec, request.namespace
        pod = await self._live(Pod, spec.pod_name, namespace, spec.pod_uid)
        await self._live(
            ServiceAccount, spec.service_account_name, namespace, spec.service_account_uid
        )
        await self._live(Node, spec.node_name, "", spec.node_uid)
        if pod.account != spec.service_account_name:
            raise Denial("OtherServiceAccount", f"the Pod runs as the account {pod.account}")
        if pod.node != spec.node_name:
            raise Denial("OtherNode", f"the Pod runs on the Node {pod.node or '(none)'}")
        # A mirror Pod is created by its node, which could write any account into it.
        if self._mirror in pod.metadata.annotations:
            raise Denial("MirrorPod", "a mirror Pod gets no certificate")

    async def _live(self, type_: type[ObjectT], name: str, namespace: str, uid: str) -> ObjectT:
        kind = type_.__name__
        live = await self._client.find(type_, name, namespace)
        if live is None:
            raise Denial(f"{kind}NotFound", f"the {kind} {name} does not exist")
        if live.metadata.uid != uid:
            text = f"the uid of the {kind} {name} is {live.metadata.uid}"
            raise Denial(f"{kind}Replaced", text)
        if live.metadata.deletion_timestamp is not None:
            raise Denial(f"{kind}BeingDeleted", f"the {kind} {name} is being deleted")
        return live

    def _sign(self, request: PodCertificateRequest, stub: SigningRequest, signer: Signer) -> bytes:
        spec, namespace, profile = request.spec, request.namespace, signer.profile
        longest = timedelta(seconds=spec.max_expiration_seconds or 0)
        account, uris = spec.service_account_name, tuple[str, ...]()
        if profile.trust_domain:
            subject = DistinguishedName()
            uris = (account_id(profile.trust_domain, namespace, account),)
        else:
            user, groups = f"{ACCOUNT_PREFIX}{namespace}:{account}", groups_of_accounts(namespace)
            subject = account_subject(user, groups, spec.service_account_uid)
        return signer.authority().sign_for_pod(
            stub,
            subject,
            min(longest, profile.max_duration, profile.default_duration),
            profile=profile,
            now=self._clock.now(),
            uris=uris,
            crl_url=signer.crl_url,
        )

    def _with_chain(self, request: PodCertificateRequest, chain: bytes) -> PodCertificateRequest:
        leaf = certificates.parse_blocks(chain)[0]
        begins, ends = leaf.not_valid_before_utc, leaf.not_valid_after_utc
        share = random.uniform(REFRESH_FROM, REFRESH_UNTIL)  # noqa: S311 -- spreads load only
        refresh = begins + share * (ends - begins)
        status = replace(
            request.status,
            certificate_chain=chain.decode("ascii"),
            not_before=begins,
            begin_refresh_at=refresh.replace(microsecond=0),
            not_after=ends,
        )
        return replace(request, status=status)

    async def _settle(
        self, request: PodCertificateRequest, type_: str, reason: str, message: str
    ) -> None:
        await self._client.update_status(request.settled(type_, reason, message, self._clock.now()))
        about = {} if type_ == ISSUED else {"type_": WARNING}
        self._events.record(self.name, request, reason, message, **about)


def build(client: Client, context: ControllerContext, events: EventRecorder) -> Running:
    naming = context.naming
    pods = naming.pod_client_signer
    return SignPodRequests(
        client,
        naming,
        signers={pods: context.signers[pods]} if pods in context.signers else {},
        crl_url=str(context.settings(RevocationSettings).crl_url),
        clock=context.clock,
        events=events,
        hsm=context.hsm,
    )


CONTROLLER = ControllerDeclaration(
    name="podcertificaterequestsigning",
    long_name="podcertificaterequest-signing-controller",
    account="podcertificaterequestsigning",
    rights=lambda naming: (
        rule(READ, naming.certificates, ("podcertificaterequests",)),
        rule(("update",), naming.certificates, ("podcertificaterequests/status",)),
        rule(("sign",), naming.certificates, ("signers",), naming.pod_client_signer),
        # For the signers of authorities and no others: see
        # features/certificates/policies/signer_permission.py.
        rule((*READ, "sign"), naming.identity, ("certificateauthorities",)),
        rule(("get",), naming.identity, ("signingkeys",)),
        rule(("get",), CORE, ("nodes", "pods", "serviceaccounts")),
        may_record_events(naming),
    ),
    reads_authority_keys=True,
    build=build,
)
