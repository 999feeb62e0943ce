"""Queue of certificate requests that depend on slow rules, one queue per signer.

Start with `SlowRequests.add`. The key of the work queue is the signer: one request per signer is
evaluated at a time, and signers take turns, so that many slow requests for one of them delay
neither the others nor the requests without slow rules (approve_requests.py).
"""

from collections.abc import Awaitable, Callable

from orchid.features.certificates.kinds.certificate_signing_request import CertificateSigningRequest
from orchid.kernel.expressions.isolated import AT_ONCE
from orchid.kernel.runtime.loop import Start, Worker


class SlowRequests(Worker[str, None]):
    name = "csrapproving-slow-rules"
    workers = AT_ONCE

    def __init__(self, decide: Callable[[str], Awaitable[None]]) -> None:
        """`decide` decides on the request of a name; it handles its own failures."""
        super().__init__()
        self._decide = decide
        self._names: dict[str, dict[str, None]] = {}  # by signer, in order of arrival

    def add(self, csr: CertificateSigningRequest) -> None:
        signer = csr.spec.signer_name
        self._names.setdefault(signer, {})[csr.name] = None
        self.queue.add(signer)

    async def follow(self, start: Start) -> None:
        """Nothing to follow: requests are added."""

    async def attend(self, key: str, value: None) -> None:
        names = self._names.get(key)
        if not names:
            return
        name = next(iter(names))
        del names[name]
        if names:
            self.queue.add(key)  # behind the other signers, after this request
        else:
            del self._names[key]
        await self._decide(name)
