"""Sign approved certificate requests that are addressed to a platform signer.

Reads   certificatesigningrequests that are approved and have no outcome yet
Writes  /status: the certificate, or a Failed condition that says why not
Never   approves (approve_requests.py) or deletes (clean_requests.py)

Each signer has rules of its own (credentials/profiles.py) and may have an authority of its own,
which is followed as its files change. While an authority cannot sign, its requests wait. A request
that breaks a rule ends as Failed. One that cannot be read although it is stored is tried again,
ever more rarely: a later release may read it, and nobody has refused it.
"""

from collections.abc import Mapping
from datetime import timedelta

from orchid.client.client import DELETED, Client, ListSelection, WatchedChange
from orchid.controllers.runtime.context import ControllerContext, Signer
from orchid.controllers.runtime.declaration import ControllerDeclaration
from orchid.controllers.runtime.events import WARNING, EventRecorder
from orchid.controllers.runtime.loop import Clock, Controller, Running
from orchid.credentials import signing_request
from orchid.credentials.refusals import NotPermitted
from orchid.kinds.certificate_signing_request import FAILED, CertificateSigningRequest
from orchid.kinds.role import READ, may_record_events, rule


class SignRequests(Controller[CertificateSigningRequest]):
    name = "csrsigning"
    workers = 32  # most of the time of one goes by until its certificate is on disk

    def __init__(
        self,
        client: Client,
        signers: Mapping[str, Signer],
        longest: timedelta,
        clock: Clock,
        events: EventRecorder,
    ) -> None:
        super().__init__(client, ListSelection(CertificateSigningRequest))
        self._signers = signers
        self._longest = longest
        self._clock = clock
        self._events = events

    def take(self, event: WatchedChange[CertificateSigningRequest]) -> None:
        # Without that word there is no such condition; most events are not even decoded.
        if event.type == DELETED or b'"Approved"' in bytes(event.data):
            super().take(event)

    async def reconcile(self, found: CertificateSigningRequest) -> None:
        signer = self._signers.get(found.spec.signer_name)
        if signer is None or not found.is_approved or found.is_issued or found.has(FAILED):
            return
        try:
            certificate = self._signed(found, signer)
        except NotPermitted as refusal:
            failed = found.with_condition(FAILED, "SignerValidationFailure", str(refusal))
            await self._client.update_status(failed)
            self._events.record(
                self.name, found, "SignerValidationFailure", str(refusal), type_=WARNING
            )
            return
        await self._client.update_status(found.with_certificate(certificate))
        self._events.record(self.name, found, "Issued", f"Issued by {found.spec.signer_name}.")

    def _signed(self, csr: CertificateSigningRequest, signer: Signer) -> bytes:
        request = signing_request.parse_once(csr.spec.request or b"")
        lifetime = signer.profile.lifetime(csr.spec.expiration_seconds, self._longest)
        return signer.authority().sign(
            request,
            signer.profile.usages(csr.spec.usages),
            lifetime,
            profile=signer.profile,
            now=self._clock.now(),
        )


def build(client: Client, context: ControllerContext, events: EventRecorder) -> Running | None:
    if not context.signers:
        return None
    return SignRequests(client, context.signers, context.signing_duration, context.clock, events)


CONTROLLER = ControllerDeclaration(
    name="csrsigning",
    long_name="certificatesigningrequest-signing-controller",
    account="csrsigning",
    rights=lambda names: (
        rule(READ, names.certificates, ("certificatesigningrequests",)),
        rule(("update",), names.certificates, ("certificatesigningrequests/status",)),
        rule(("sign",), names.certificates, ("signers",), *names.signing_signers),
        may_record_events(names),
    ),
    build=build,
)
