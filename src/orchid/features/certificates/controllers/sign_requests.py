"""Sign approved certificate requests for the platform signers and for custom authorities.

Reads   certificatesigningrequests that are approved and have no outcome yet;
        certificateauthorities, and the Secret with the key of a signing one
Writes  /status: the certificate, or a Failed condition with the reason
Never   approves (features/approving/controllers/approve_requests.py) or deletes (clean_requests.py)

Each platform signer has a profile (kernel/credentials/authorities/profiles.py). If the CAs of the
platform are files, those are followed. Any other signer is ours if a CertificateAuthority has it;
that authority signs while it is Ready, with the certificate in its status. While an authority
cannot sign, its requests wait, with an Event. A request that violates the profile becomes Failed,
and so does one whose requester was revoked since, or whose key is compromised. A stored request
that is malformed is retried, with growing pauses: a later release may accept it.
"""

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from functools import partial

from orchid.features.approval.platform_signers import platform_profiles
from orchid.features.approval.spiffe_requests import refuse_other_identity
from orchid.features.authorities.settings import AuthoritySettings
from orchid.features.certificates.controllers.signing_controller import SigningController
from orchid.features.certificates.kinds.certificate_signing_request import CertificateSigningRequest
from orchid.features.revocation.settings import RevocationSettings
from orchid.kernel.base.clock import Clock
from orchid.kernel.base.scheduling.batched_work import BatchedWork
from orchid.kernel.client.client import DELETED, Client, ListSelection, WatchedChange
from orchid.kernel.credentials.authorities.hsm import NO_HSM, KeysOfHsm
from orchid.kernel.credentials.authorities.issuer_chain import refuse_out_of_time
from orchid.kernel.credentials.authorities.profiles import Profile
from orchid.kernel.credentials.refusals import NotPermitted, SigningFailed
from orchid.kernel.credentials.x509 import signing_request
from orchid.kernel.runtime.context import ControllerContext, Signer
from orchid.kernel.runtime.declaration import ControllerDeclaration
from orchid.kernel.runtime.events import WARNING, EventRecorder
from orchid.kernel.runtime.loop import Running
from orchid.kernel.wire.errors import Forbidden
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.policy_rules import READ, may_record_events, rule
from orchid.kernel.wire.request_conditions import ENDING_CAUSES, FAILED


class SignRequests(SigningController[CertificateSigningRequest]):
    name = "csrsigning"

    def __init__(
        self,
        client: Client,
        naming: Naming,
        *,
        signers: Mapping[str, Signer],
        platform: Mapping[str, Profile],
        longest: timedelta,
        crl_url: str,
        clock: Clock,
        events: EventRecorder,
        hsm: KeysOfHsm = NO_HSM,
    ) -> None:
        super().__init__(
            client,
            ListSelection(CertificateSigningRequest),
            naming,
            signers=signers,
            platform=platform,
            crl_url=crl_url,
            clock=clock,
            events=events,
            hsm=hsm,
        )
        self._longest = longest
        self._signatures = BatchedWork()

    def take(self, event: WatchedChange[CertificateSigningRequest]) -> None:
        # Without that word there is no such condition; most events are not decoded.
        if event.type != DELETED and b'"Approved"' not in bytes(event.data):
            return
        request = event.object
        if event.type == DELETED or request.is_issued:
            self.stop_waiting(request)
        if request.is_issued:
            self.queue.drop((request.namespace, request.name))
        else:
            super().take(event)

    async def reconcile(self, request: CertificateSigningRequest) -> None:
        if not request.is_approved or request.is_issued or request.has(FAILED):
            return
        name = request.spec.signer_name
        try:
            signer = self._signers.get(name) or await self._stored.signer(name)
            if signer is None:
                self.wait_for_authority(request)
                return
            certificate = await self._signed(request, signer)
        except SigningFailed as problem:
            self.report_waiting(request, str(problem))
            raise  # retried later: the authority may be renewed
        except NotPermitted as refusal:
            await self._fail(request, "SignerValidationFailure", str(refusal))
            return
        try:
            await self._client.update_status(request.with_certificate(certificate))
        except Forbidden as refusal:
            cause = refusal.cause_among(ENDING_CAUSES)
            if not cause:
                raise
            await self._fail(request, cause, str(refusal))
            return
        self._events.record(self.name, request, "Issued", f"Issued by {request.spec.signer_name}.")

    async def _fail(self, csr: CertificateSigningRequest, reason: str, message: str) -> None:
        await self._client.update_status(csr.with_condition(FAILED, reason, message))
        self._events.record(self.name, csr, reason, message, type_=WARNING)

    async def _signed(self, csr: CertificateSigningRequest, signer: Signer) -> bytes:
        name = csr.spec.signer_name
        if name not in self._signers:
            refuse_out_of_time(signer.authority().chain, self._clock.now())
        if name in self._platform:
            return await self._signatures.run(partial(self._sign, csr, signer, self._longest))
        # Signing may take milliseconds, depending on the key. The profile has the maximum lifetime.
        return await asyncio.to_thread(self._sign, csr, signer, timedelta.max)

    def _sign(self, csr: CertificateSigningRequest, signer: Signer, longest: timedelta) -> bytes:
        request = signing_request.parse_once(csr.spec.request or b"")
        refuse_other_identity(signer.profile, request, csr.spec.username)
        return signer.authority().sign(
            request,
            signer.profile.usages(csr.spec.usages),
            signer.profile.lifetime(csr.spec.expiration_seconds, longest),
            profile=signer.profile,
            now=self._clock.now(),
            crl_url=signer.crl_url,
        )


def build(client: Client, context: ControllerContext, events: EventRecorder) -> Running:
    return SignRequests(
        client,
        context.naming,
        signers={
            name: signer
            for name, signer in context.signers.items()
            if name in context.naming.signing_signers
        },
        platform=platform_profiles(context.naming),
        longest=context.settings(AuthoritySettings).cluster_signing_duration.delta,
        crl_url=str(context.settings(RevocationSettings).crl_url),
        clock=context.clock,
        events=events,
        hsm=context.hsm,
    )


CONTROLLER = ControllerDeclaration(
    name="csrsigning",
    long_name="certificatesigningrequest-signing-controller",
    account="csrsigning",
    rights=lambda naming: (
        rule(READ, naming.certificates, ("certificatesigningrequests",)),
        rule(("update",), naming.certificates, ("certificatesigningrequests/status",)),
        rule(("sign",), naming.certificates, ("signers",), *naming.signing_signers),
        # For the signers of authorities and no others: see
        # features/certificates/policies/signer_permission.py.
        rule((*READ, "sign"), naming.identity, ("certificateauthorities",)),
        rule(("get",), naming.identity, ("signingkeys",)),
        may_record_events(naming),
    ),
    reads_authority_keys=True,
    build=build,
)
