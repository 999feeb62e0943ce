"""Base of the controllers that sign: the authority of each signer, and requests that wait for it.

    sign_requests.py       certificatesigningrequests
    sign_pod_requests.py   podcertificaterequests

A request whose signer has no usable authority waits, with an Event if the authority reports a
problem; a change of the authority queues it again.
"""

from collections.abc import Mapping
from typing import TypeVar

from orchid.features.authorities.controllers.follow_authorities import (
    AuthorityFollower,
    AuthorityKeys,
)
from orchid.features.authorities.kinds.certificate_authority import CertificateAuthority
from orchid.features.certificates.kinds.certificate_signing_request import CertificateSigningRequest
from orchid.features.certificates.kinds.pod_certificate_request import PodCertificateRequest
from orchid.kernel.base.clock import Clock
from orchid.kernel.client.client import Client, ListSelection
from orchid.kernel.credentials.authorities.hsm import NO_HSM, KeysOfHsm
from orchid.kernel.credentials.authorities.profiles import Profile
from orchid.kernel.runtime.context import Signer
from orchid.kernel.runtime.events import WARNING, EventRecorder
from orchid.kernel.runtime.loop import Controller, Key, Start
from orchid.kernel.wire.conditions import READY, TRUE
from orchid.kernel.wire.naming import Naming

R = TypeVar("R", bound=CertificateSigningRequest | PodCertificateRequest)


class SigningController(Controller[R]):
    workers = 32  # most of the time is spent waiting for the certificate to reach the disk

    def __init__(
        self,
        client: Client,
        follows: ListSelection[R],
        naming: Naming,
        *,
        signers: Mapping[str, Signer],
        platform: Mapping[str, Profile],
        crl_url: str,
        clock: Clock,
        events: EventRecorder,
        hsm: KeysOfHsm = NO_HSM,
    ) -> None:
        """`signers`: the platform signers with a CA in files. `platform`: the profiles of those
        that are signed for, by name; their CA may also be the authority of the platform.
        """
        super().__init__(client, follows)
        self._signers = signers
        self._clock = clock
        self._events = events
        self.authorities = AuthorityFollower(client)
        self._platform = platform
        self._stored = AuthorityKeys(
            client, naming, self.authorities, crl_url, platform=platform, hsm=hsm
        )
        self._waiting: dict[str, set[Key]] = {}  # requests without a signer, by its name

    async def follow(self, start: Start) -> None:
        self.authorities.forget()
        self._waiting.clear()
        start(self.authorities.follow(self._authority_changed))
        await self.authorities.all_loaded.wait()
        await super().follow(start)

    def _authority_changed(self, authority: CertificateAuthority) -> None:
        for signer in authority.signers:
            for key in self._waiting.pop(signer, ()):
                self.queue.add(key)

    def wait_for_authority(self, request: R) -> None:
        """Queue the request again when the authority of its signer changes."""
        signer = request.spec.signer_name
        self._waiting.setdefault(signer, set()).add((request.namespace, request.name))
        authority = self.authorities.of(signer)
        for condition in authority.status.conditions if authority else ():
            if condition.type == READY and condition.status != TRUE:
                self.report_waiting(request, condition.message)

    def report_waiting(self, found: R, why: str) -> None:
        text = f"The authority of {found.spec.signer_name} cannot sign now: {why}"
        self._events.record(self.name, found, "AuthorityNotReady", text, type_=WARNING)

    def stop_waiting(self, request: R) -> None:
        """Forget a request that is deleted or has its outcome."""
        signer = request.spec.signer_name
        if signer in self._waiting:
            self._waiting[signer].discard((request.namespace, request.name))
            if not self._waiting[signer]:
                del self._waiting[signer]
