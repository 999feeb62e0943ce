"""What outputs share in one round: bundles, and the Pods that place an account here."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from orchid.features.hosts.agent.outputs.content import ContentFailed, Life, projected_sources
from tests.unit.features.hosts.agent.outputs.answering import OTHER_SIGNER, SIGNER, Server, a_round
from tests.unit.kernel.credentials.samples import NOW

SECOND = timedelta(seconds=1)


def pod(name: str, namespace: str = "web", account: str = "front", **meta: Any) -> dict[str, Any]:
    named = {"name": name, "namespace": namespace, **meta}
    return {"metadata": named, "spec": {"serviceAccountName": account}}


def test_only_pods_of_that_account_count(tmp_path: Path) -> None:
    """Not an account of that name in another namespace, and not a Pod that is being deleted."""
    server = Server()
    server.pods = [
        pod("other-namespace", namespace="mail"),
        pod("other-account", account="back"),
        pod("gone", deletionTimestamp="2026-01-01T00:00:00Z"),
        pod("first"),
        pod("second"),
    ]
    current = a_round(server, tmp_path)

    assert [one["metadata"]["name"] for one in current.pods("web/front")] == ["first", "second"]
    assert [one["metadata"]["name"] for one in current.pods("mail/front")] == ["other-namespace"]
    assert current.pods("web/none") == []
    assert server.calls["pods"] == 1


def test_each_signer_has_its_bundle(tmp_path: Path) -> None:
    """Fetched once in a round, also if there is none."""
    server = Server()
    current = a_round(server, tmp_path)

    assert current.bundle(SIGNER) == current.anchors(SIGNER) != b""
    assert current.anchors(OTHER_SIGNER) == b""
    with pytest.raises(ContentFailed, match=f"{OTHER_SIGNER} has no trust bundle"):
        current.bundle(OTHER_SIGNER)
    assert server.calls["clustertrustbundles"] == 2


def test_a_credential_ends_and_is_due_at_its_second() -> None:
    life = Life(NOW, NOW)

    assert (life.is_expired(NOW - SECOND), life.is_due(NOW - SECOND)) == (False, False)
    assert (life.is_expired(NOW), life.is_due(NOW)) == (True, True)
    assert (Life().is_expired(NOW), Life().is_due(NOW)) == (False, False)


def test_the_sources_of_all_projected_volumes_are_found() -> None:
    sources = [{"podCertificate": {"signerName": SIGNER}}, {"serviceAccountToken": {}}]
    volumes = [{"projected": {"sources": [one]}} for one in sources]
    volumes += [{"emptyDir": {}}, {"projected": None}, {"projected": {}}]

    assert projected_sources({"spec": {"volumes": volumes}}) == sources
    assert projected_sources({"spec": {}}) == []
