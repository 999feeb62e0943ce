"""Requests that wait for the authority of their signer: which are queued again, and why."""

import asyncio
from typing import Any

import pytest

from orchid.features.authorities.kinds.certificate_authority import CertificateAuthority
from orchid.features.certificates.controllers.signing_controller import SigningController
from orchid.features.certificates.kinds.certificate_signing_request import (
    CertificateSigningRequest as Request,
)
from orchid.kernel.client.client import ListSelection
from orchid.kernel.runtime.loop import TryAgain
from orchid.kernel.wire.codec.documents import convert
from orchid.kernel.wire.naming import ORCH
from tests.unit.features.small_client import SmallClient, change
from tests.unit.kernel.access.presenting import FakeClock

WEB, NODES = "example.com/web", "orch.io/nodes"


class Signing(SigningController[Request]):
    """The base with nothing to sign, over a client and a recorder."""

    name = "signing"

    def __init__(self, *authorities: CertificateAuthority) -> None:
        self.client: Any = SmallClient()
        self.client.batches = [[change(one, "LISTED") for one in authorities], []]
        self.recorded: list[tuple[str, str, str]] = []
        super().__init__(
            self.client,
            ListSelection(Request),
            ORCH,
            signers={},
            platform={},
            crl_url="",
            clock=FakeClock(),
            events=self,
        )

    def record(self, _component: str, about: Any, reason: str, message: str, *, type_: str) -> None:
        self.recorded.append((about.name, f"{type_} {reason}", message))

    async def reconcile(self, found: Request) -> None:
        raise NotImplementedError

    @property
    def queued(self) -> list[str]:
        return sorted(name for _, name in self.queue._waiting)


async def loaded(*authorities: CertificateAuthority) -> Signing:
    made = Signing(*authorities)
    await made.authorities.follow(made._authority_changed)
    return made


def request(name: str = "one", signer: str = WEB) -> Request:
    return convert({"metadata": {"name": name}, "spec": {"signerName": signer}}, Request)


def authority(status: str = "True", **spec: Any) -> CertificateAuthority:
    said = [
        {"type": "Expiring", "status": "False", "message": "it lasts"},
        {"type": "Ready", "status": status, "message": "no key"},
    ]
    given = {"signerName": WEB, "key": {"algorithm": "ECDSA-P256"}, **spec}
    found = {"metadata": {"name": "web"}, "spec": given, "status": {"conditions": said}}
    return convert(found, CertificateAuthority)


async def test_a_request_is_queued_again_when_its_authority_changes() -> None:
    """Those of another signer are not, and none a second time."""
    made = await loaded()
    made.wait_for_authority(request("one"))
    made.wait_for_authority(request("two"))
    made.wait_for_authority(request("other", "example.com/other"))

    made._authority_changed(authority())
    assert made.queued == ["one", "two"]
    made.queue.clear()
    made._authority_changed(authority())
    assert made.queued == []


async def test_each_signer_of_the_platform_queues_its_requests() -> None:
    made = await loaded()
    made.wait_for_authority(request("one", NODES))
    made.wait_for_authority(request("two", WEB))

    made._authority_changed(authority(signerName="", signerNames=[NODES, WEB]))

    assert made.queued == ["one", "two"]


async def test_a_request_that_is_done_does_not_wait() -> None:
    """The others of its signer do; nothing is left of a signer without requests."""
    made = await loaded()
    made.wait_for_authority(request("one"))
    made.wait_for_authority(request("two"))

    made.stop_waiting(request("one"))
    made.stop_waiting(request("never", "example.com/never"))
    assert made._waiting == {WEB: {("", "two")}}
    made.stop_waiting(request("two"))
    assert made._waiting == {}


@pytest.mark.parametrize(
    ("authorities", "message"),
    [
        ((), None),
        ((authority("True"),), None),
        ((authority("False"),), f"The authority of {WEB} cannot sign now: no key"),
        ((authority("Unknown"),), f"The authority of {WEB} cannot sign now: no key"),
    ],
)
async def test_the_problem_of_the_authority_is_an_event(authorities: Any, message: Any) -> None:
    """Only that of Ready, and none without an authority."""
    made = await loaded(*authorities)

    made.wait_for_authority(request())

    said = [("one", "Warning AuthorityNotReady", message)] if message else []
    assert made.recorded == said


async def test_nothing_waits_for_an_authority_that_is_not_loaded() -> None:
    """It is tried again, for the answer is not known; and a change queues it earlier."""
    made = Signing()

    with pytest.raises(TryAgain):
        made.wait_for_authority(request())

    made._authority_changed(authority())
    assert made.queued == ["one"]


async def test_a_new_start_loads_all_authorities_before_any_request() -> None:
    made = await loaded(authority())
    made.wait_for_authority(request())
    made.client.followed.clear()
    started: list[asyncio.Task[None]] = []

    def start(coroutine: Any) -> None:
        assert not made._waiting
        assert made.authorities.all_loaded.is_set() is bool(started)
        started.append(asyncio.create_task(coroutine))

    await made.follow(start)
    await asyncio.wait(started[:2])
    for task in started:
        task.cancel()

    assert [one.of for one in made.client.followed] == [CertificateAuthority, Request]
