"""Requests with slow rules: one at a time for each signer, and the signers in turns."""

from orchid.features.approving.controllers.slow_requests import SlowRequests
from orchid.features.certificates.kinds.certificate_signing_request import CertificateSigningRequest
from orchid.kernel.wire.codec.documents import convert


def request(name: str, signer: str) -> CertificateSigningRequest:
    spec = {"signerName": f"example.com/{signer}"}
    return convert({"metadata": {"name": name}, "spec": spec}, CertificateSigningRequest)


class Deciding:
    """The queue, and the order of decisions."""

    def __init__(self) -> None:
        self.decided: list[str] = []
        self.slow = SlowRequests(self.decide)

    async def decide(self, name: str) -> None:
        self.decided.append(name)

    async def work(self) -> None:
        """Everything that is queued, by one worker."""
        while len(self.slow.queue):
            key, value = await self.slow.queue.take()
            await self.slow.attend(key, value)
            self.slow.queue.done(key)


async def test_signers_take_turns() -> None:
    """Many requests for one of them do not delay the others."""
    made = Deciding()
    for name, signer in (("a1", "a"), ("a2", "a"), ("a3", "a"), ("b1", "b"), ("b2", "b")):
        made.slow.add(request(name, signer))

    await made.work()

    assert made.decided == ["a1", "b1", "a2", "b2", "a3"]


async def test_a_request_that_is_added_twice_is_decided_once() -> None:
    """In the order of its first arrival; and again if it is added after the decision."""
    made = Deciding()
    for name in ("one", "two", "one"):
        made.slow.add(request(name, "a"))

    await made.work()
    assert made.decided == ["one", "two"]
    made.slow.add(request("one", "a"))
    await made.work()
    assert made.decided == ["one", "two", "one"]


async def test_nothing_is_left_of_signers_without_requests() -> None:
    """Requesters choose the names of signers."""
    made = Deciding()
    made.slow.add(request("one", "a"))

    await made.work()
    await made.slow.attend("example.com/a", None)

    assert made.slow._names == {}
    assert made.decided == ["one"]


async def test_a_request_that_comes_during_a_decision_is_not_lost() -> None:
    made = Deciding()
    made.slow.add(request("one", "a"))

    async def decide(name: str) -> None:
        made.decided.append(name)
        if name == "one":
            made.slow.add(request("two", "a"))

    made.slow._decide = decide

    await made.work()

    assert made.decided == ["one", "two"]
