"""Sign approved certificate requests for the platform signers and for custom authorities.

Reads   certificatesigningrequests that are approved and have no outcome yet;
        certificateauthorities, and the Secret with the key of a signing one
Writes  /status: the certificate, or a Failed condition with the reason
Never   approves (approve_requests.py) or deletes (clean_requests.py)

Each platform signer has a profile (credentials/authorities/profiles.py) and may have an authority
of its own, whose files are followed. Any other signer is ours if a CertificateAuthority has it;
that authority signs while it is Ready, with the certificate in its status. While an authority
cannot sign, its requests wait, with an Event. A request that violates the profile becomes Failed. A
stored request that is malformed is retried, with growing pauses: a later release may accept it.
"""

import asyncio
from collections.abc import Mapping
from datetime import timedelta

from orchid.client.client import DELETED, Client, ListSelection, WatchedChange
from orchid.clock import Clock
from orchid.controllers.follow_authorities import AuthorityFollower, AuthorityKeys
from orchid.controllers.runtime.context import ControllerContext, Signer
from orchid.controllers.runtime.declaration import ControllerDeclaration
from orchid.controllers.runtime.events import WARNING, EventRecorder
from orchid.controllers.runtime.loop import Controller, Key, Running, Start
from orchid.credentials.authorities.issuer_chain import refuse_out_of_time
from orchid.credentials.refusals import NotPermitted, SigningFailed
from orchid.credentials.x509 import signing_request
from orchid.kinds.certificate_authority import CertificateAuthority
from orchid.kinds.certificate_signing_request import CertificateSigningRequest
from orchid.kinds.role import READ, may_record_events, rule
from orchid.wire.conditions import READY, TRUE
from orchid.wire.naming import Naming
from orchid.wire.request_conditions import FAILED


class SignRequests(Controller[CertificateSigningRequest]):
    name = "csrsigning"
    workers = 32  # most of the time is spent waiting for the certificate to reach the disk

    def __init__(
        self,
        client: Client,
        names: Naming,
        *,
        signers: Mapping[str, Signer],
        longest: timedelta,
        crl_url: str,
        clock: Clock,
        events: EventRecorder,
    ) -> None:
        super().__init__(client, ListSelection(CertificateSigningRequest))
        self._signers = signers
        self._longest = longest
        self._clock = clock
        self._events = events
        self._authorities = AuthorityFollower(client)
        self._own = AuthorityKeys(client, names, self._authorities, crl_url)
        self._waiting: dict[str, set[Key]] = {}  # requests without a signer, by its name

    async def follow(self, start: Start) -> None:
        self._authorities.forget()
        self._waiting.clear()
        start(self._authorities.follow(self._authority_changed))
        await self._authorities.all_loaded.wait()
        await super().follow(start)

    def _authority_changed(self, authority: CertificateAuthority) -> None:
        for key in self._waiting.pop(authority.spec.signer_name, ()):
            self.queue.add(key)

    def _wait(self, found: CertificateSigningRequest) -> None:
        """Queue the request again when the authority of its signer changes."""
        signer = found.spec.signer_name
        self._waiting.setdefault(signer, set()).add((found.namespace, found.name))
        authority = self._authorities.of(signer)
        for condition in authority.status.conditions if authority else ():
            if condition.type == READY and condition.status != TRUE:
                self._report_waiting(found, condition.message)

    def _report_waiting(self, found: CertificateSigningRequest, why: str) -> None:
        text = f"The authority of {found.spec.signer_name} cannot sign now: {why}"
        self._events.record(self.name, found, "AuthorityNotReady", text, type_=WARNING)

    def _forget(self, found: CertificateSigningRequest) -> None:
        signer = found.spec.signer_name
        if signer in self._waiting:
            self._waiting[signer].discard((found.namespace, found.name))
            if not self._waiting[signer]:
                del self._waiting[signer]

    def take(self, event: WatchedChange[CertificateSigningRequest]) -> None:
        # Without that word there is no such condition; most events are not decoded.
        if event.type != DELETED and b'"Approved"' not in bytes(event.data):
            return
        found = event.object
        if event.type == DELETED or found.is_issued:
            self._forget(found)
        if found.is_issued:
            self.queue.drop((found.namespace, found.name))
        else:
            super().take(event)

    async def reconcile(self, found: CertificateSigningRequest) -> None:
        if not found.is_approved or found.is_issued or found.has(FAILED):
            return
        name = found.spec.signer_name
        try:
            signer = self._signers.get(name) or await self._own.signer(name)
            if signer is None:
                self._wait(found)
                return
            certificate = await self._signed(found, signer)
        except SigningFailed as problem:
            self._report_waiting(found, str(problem))
            raise  # retried later: the authority may be renewed
        except NotPermitted as refusal:
            failed = found.with_condition(FAILED, "SignerValidationFailure", str(refusal))
            await self._client.update_status(failed)
            self._events.record(
                self.name, found, "SignerValidationFailure", str(refusal), type_=WARNING
            )
            return
        await self._client.update_status(found.with_certificate(certificate))
        self._events.record(self.name, found, "Issued", f"Issued by {found.spec.signer_name}.")

    async def _signed(self, csr: CertificateSigningRequest, signer: Signer) -> bytes:
        name = csr.spec.signer_name
        if name in self._signers:
            return self._sign(csr, signer, self._longest)
        refuse_out_of_time(signer.authority().chain, self._clock.now())
        # Signing may take milliseconds, depending on the key. The profile has the maximum lifetime.
        return await asyncio.to_thread(self._sign, csr, signer, timedelta.max)

    def _sign(self, csr: CertificateSigningRequest, signer: Signer, longest: timedelta) -> bytes:
        return signer.authority().sign(
            signing_request.parse_once(csr.spec.request or b""),
            signer.profile.usages(csr.spec.usages),
            signer.profile.lifetime(csr.spec.expiration_seconds, longest),
            profile=signer.profile,
            now=self._clock.now(),
            crl_url=signer.crl_url,
        )


def build(client: Client, context: ControllerContext, events: EventRecorder) -> Running:
    return SignRequests(
        client,
        context.names,
        signers={
            name: signer
            for name, signer in context.signers.items()
            if name in context.names.signing_signers
        },
        longest=context.signing_duration,
        crl_url=context.crl_url,
        clock=context.clock,
        events=events,
    )


CONTROLLER = ControllerDeclaration(
    name="csrsigning",
    long_name="certificatesigningrequest-signing-controller",
    account="csrsigning",
    rights=lambda names: (
        rule(READ, names.certificates, ("certificatesigningrequests",)),
        rule(("update",), names.certificates, ("certificatesigningrequests/status",)),
        rule(("sign",), names.certificates, ("signers",), *names.signing_signers),
        # For the signers of authorities and no others: see admission/signer_permission.py.
        rule((*READ, "sign"), names.identity, ("certificateauthorities",)),
        rule(("get",), names.identity, ("signingkeys",)),
        may_record_events(names),
    ),
    reads_authority_keys=True,
    build=build,
)
