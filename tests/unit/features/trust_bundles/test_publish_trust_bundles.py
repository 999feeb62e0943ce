"""Bundles of the server's and the platform's signers: one each, and how long earlier ones stay."""

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from orchid.features.trust_bundles.controllers.publish_trust_bundles import (
    PublishTrustBundles,
    build,
    bundle_name,
    is_past,
    top_of_chain,
)
from orchid.features.trust_bundles.kinds.cluster_trust_bundle import (
    ClusterTrustBundle,
    ClusterTrustBundleSpec,
)
from orchid.kernel.wire.errors import AlreadyExists, ErrorSubject
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.naming import ORCH
from tests.unit.features.small_client import SmallClient
from tests.unit.kernel.access.presenting import FakeClock
from tests.unit.kernel.credentials import chains
from tests.unit.kernel.credentials.samples import DAY, NOW, OTHER_P256

SERVING, CLIENTS, FOREIGN = "example.com/serving", "example.com/clients", "example.com/web"


def ca(name: str = "ca", end: timedelta = DAY) -> str:
    made = chains.authority(name, start=NOW - 9 * DAY, end=NOW + end)
    return made.public_bytes(Encoding.PEM).decode()


NEW, OLD, EXPIRED = ca("new"), ca("old"), ca("expired", -DAY)


def bundle(signer: str, text: str, name: str = "") -> ClusterTrustBundle:
    spec = ClusterTrustBundleSpec(signer_name=signer, trust_bundle=text)
    return ClusterTrustBundle(
        metadata=ObjectMeta(name=name or bundle_name(signer, text)), spec=spec
    )


def publisher(
    *stored: ClusterTrustBundle, serving: str = NEW, clients: str = NEW
) -> tuple[PublishTrustBundles, SmallClient]:
    client = SmallClient(*stored)
    anchors = {SERVING: lambda: serving, CLIENTS: lambda: clients}
    parts: Any = client, anchors, FakeClock(NOW)
    return PublishTrustBundles(*parts, alone=SERVING), client


async def test_each_signer_has_its_bundle() -> None:
    controller, client = publisher(clients=OLD)

    await controller.all_listed()

    assert client.written("create") == [bundle(SERVING, NEW), bundle(CLIENTS, OLD)]


async def test_what_is_published_is_not_written_again() -> None:
    controller, client = publisher(bundle(SERVING, NEW), bundle(CLIENTS, NEW))

    await controller.all_listed()

    assert client.writes == []


async def test_a_bundle_that_another_client_changed_is_corrected() -> None:
    changed = bundle(CLIENTS, OLD, bundle_name(CLIENTS, NEW))
    controller, client = publisher(changed)

    await controller.reconcile(changed)

    assert client.written("update") == [bundle(CLIENTS, NEW)]


@pytest.mark.parametrize("signer", [SERVING, CLIENTS])
async def test_a_deleted_bundle_comes_back(signer: str) -> None:
    """That of its signer alone."""
    controller, client = publisher()

    await controller.gone(bundle(signer, NEW))

    assert client.written("create") == [bundle(signer, NEW)]


@pytest.mark.parametrize(
    ("signer", "text", "goes"),
    [
        (SERVING, OLD, True),
        (SERVING, EXPIRED, True),
        (CLIENTS, OLD, False),
        (CLIENTS, EXPIRED, True),
        (CLIENTS, EXPIRED + OLD, False),
        (CLIENTS, "no certificate", False),
        (FOREIGN, EXPIRED, False),
    ],
)
async def test_an_earlier_bundle_stays_until_its_last_certificate_ends(
    signer: str, text: str, goes: bool
) -> None:
    """Not that of the server, which has one bundle; those of other signers are not ours."""
    earlier = bundle(signer, text)
    controller, client = publisher(earlier)

    await controller.reconcile(earlier)
    await controller.gone(bundle(FOREIGN, NEW))

    assert client.writes == ([("delete", earlier)] if goes else [])


async def test_an_unknown_ca_removes_no_bundle() -> None:
    """The file of the server's certificates may no longer contain its CA."""
    earlier = bundle(SERVING, OLD)
    controller, client = publisher(earlier, serving="")

    await controller.reconcile(earlier)
    await controller.publish(SERVING)

    assert client.writes == []


async def test_another_server_that_was_faster_is_no_failure() -> None:
    controller, client = publisher()
    client.refuses["create"] = AlreadyExists(ErrorSubject("", "clustertrustbundles"))

    await controller.publish(CLIENTS)

    assert client.writes == []


def test_all_is_published_again_when_one_ca_changes() -> None:
    states = [
        publisher(serving=one, clients=two) for one, two in ((NEW, NEW), (NEW, OLD), (OLD, NEW))
    ]

    assert len({str(controller.rests_on()) for controller, _ in states}) == 3


@pytest.mark.parametrize(
    ("text", "past"), [(EXPIRED, True), (OLD, False), (OLD + EXPIRED, False), ("nonsense", False)]
)
def test_a_bundle_is_past_when_all_of_it_is(text: str, past: bool) -> None:
    assert is_past(text, NOW) is past


def test_a_bundle_lasts_to_the_end_of_its_certificate() -> None:
    ends = ca("ends", timedelta())

    assert not is_past(ends, NOW)
    assert is_past(ends, NOW + timedelta(seconds=1))


def test_the_anchor_is_the_last_certificate_of_a_chain() -> None:
    below = chains.authority("below", issuer="new", key=OTHER_P256, end=NOW + DAY)

    assert top_of_chain(below.public_bytes(Encoding.PEM).decode() + NEW) == NEW


def test_signers_of_one_ca_have_bundles_of_different_names() -> None:
    assert bundle_name(SERVING, NEW) != bundle_name(CLIENTS, NEW)
    assert bundle_name(CLIENTS, NEW) != bundle_name(CLIENTS, OLD)


@pytest.mark.parametrize(("signers", "root_ca"), [({}, ""), ({"a/b": None}, ""), ({}, NEW)])
def test_without_any_ca_nothing_is_published(signers: Any, root_ca: str) -> None:
    context = SimpleNamespace(signers=signers, root_ca=lambda: root_ca, naming=ORCH, clock=None)
    parts: Any = SmallClient(), context, None

    assert (build(*parts) is not None) is bool(signers or root_ca)
