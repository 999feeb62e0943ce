"""The certificate of a Pod counts while its account and its Pod exist, by uid."""

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from orchid.features.accounts.authenticators.service_account_token import DELETION_LEEWAY
from orchid.features.accounts.kinds.service_account import ServiceAccount
from orchid.features.certificates.authenticators.pod_certificate import PodCertificates
from orchid.features.certificates.kinds.issued_certificate import IssuedPod
from orchid.features.objects.kinds.pod.pod import Pod
from orchid.kernel.credentials.x509.certificates import Identity
from orchid.kernel.engine.interfaces import Rejected
from orchid.kernel.wire.meta import ObjectMeta
from tests.unit.kernel.access.presenting import START
from tests.unit.kernel.access.world import World, world

ROBOT = "system:serviceaccount:ci:robot"
RECORDED = IssuedPod(namespace="ci", name="p", uid="p1", node_name="n")
CHAIN: Any = None
SECOND = timedelta(seconds=1)


class Records:
    """One record, or none, for every certificate."""

    def __init__(self, pod: IssuedPod | None, *, exists: bool = True) -> None:
        spec = SimpleNamespace(pod=pod)
        self._found = SimpleNamespace(object=SimpleNamespace(spec=spec)) if exists else None

    def record(self, chain: Any) -> Any:
        return self._found


def account(namespace: str = "ci", uid: str = "a1", **meta: Any) -> ServiceAccount:
    named = ObjectMeta(name="robot", namespace=namespace, uid=uid, **meta)
    return ServiceAccount(metadata=named)


def pod(namespace: str = "ci", uid: str = "p1", **meta: Any) -> Pod:
    return Pod(metadata=ObjectMeta(name="p", namespace=namespace, uid=uid, **meta))


async def refusal(*found: Any, user: str = ROBOT, uid: str = "a1", records: Any = None) -> str:
    async with world() as here:
        for one in found:
            await here.put(one)
        return refused(here, user, uid, records or Records(RECORDED))


def refused(here: World, user: str, uid: str, records: Any) -> str:
    try:
        PodCertificates(here.feed, here.clock, records).refuse_ended(
            Identity(user, (), uid, ""), CHAIN
        )
    except Rejected as problem:
        return str(problem)
    return ""


async def test_it_counts_while_both_exist() -> None:
    assert await refusal(account(), pod()) == ""


@pytest.mark.parametrize(
    ("found", "text"),
    [
        ((pod(),), 'serviceaccount "ci/robot" of the certificate does not exist'),
        ((account("test"), pod()), "does not exist"),
        ((account(uid="a2"), pod()), "not the one that the certificate was issued for"),
        ((account(),), 'pod "ci/p" of the certificate does not exist'),
        ((account(), pod("test")), "does not exist"),
        ((account(), pod(uid="p2")), "not the one that the certificate was issued for"),
    ],
)
async def test_an_account_or_a_pod_that_is_gone_or_was_replaced_ends_it(
    found: tuple[Any, ...], text: str
) -> None:
    """Also one of that name in another namespace."""
    assert text in await refusal(*found)


@pytest.mark.parametrize("which", ["account", "pod"])
async def test_one_marked_for_deletion_vouches_for_a_minute(which: str) -> None:
    for late, is_refused in ((timedelta(), False), (SECOND, True)):
        marked = {"deletion_timestamp": START - DELETION_LEEWAY - late}
        found = await refusal(
            account(**(marked if which == "account" else {})),
            pod(**(marked if which == "pod" else {})),
        )
        assert ("has been deleted" in found) == is_refused


@pytest.mark.parametrize("records", [Records(None), Records(RECORDED, exists=False)])
async def test_without_a_record_of_its_pod_it_is_refused(records: Records) -> None:
    assert "no record names its Pod" in await refusal(account(), pod(), records=records)


@pytest.mark.parametrize(("user", "uid"), [(ROBOT, ""), ("jane", "a1"), ("", "a1")])
async def test_other_certificates_are_not_judged_here(user: str, uid: str) -> None:
    """Those of a CertificateSigningRequest have no uid; others name no account."""
    assert await refusal(user=user, uid=uid, records=Records(None)) == ""
