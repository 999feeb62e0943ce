"""A certificate of an output: when the present one is kept, and for whom the next is requested."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from orchid.features.hosts.agent.configuration import Certificate
from orchid.features.hosts.agent.held_certificate import CertificateUnfit, UntrustedChain
from orchid.features.hosts.agent.outputs.certificate import (
    BUNDLE,
    CHAIN,
    KEY,
    PAIR,
    CertificateContent,
)
from orchid.features.hosts.agent.outputs.content import ContentFailed, Files, Fresh
from tests.unit.features.hosts.agent.outputs.answering import (
    HOST,
    OTHER_SIGNER,
    SIGNER,
    Server,
    a_round,
    pem,
)
from tests.unit.features.hosts.agent.outputs.test_content import pod
from tests.unit.kernel.credentials import chains
from tests.unit.kernel.credentials.samples import HOUR, NOW

NAME = "web.example.com"
WANTED = Certificate(signer=SIGNER, dns_names=(NAME,))
ACCOUNT = Certificate(signer=SIGNER, account="web/front")


def refreshed(server: Server, place: Path, files: Files, wanted: Certificate = WANTED) -> Fresh:
    return CertificateContent(wanted).refresh("web", files, a_round(server, place))


def content(fresh: Fresh) -> dict[str, bytes]:
    return {file.name: file.data for file in fresh.files}


@pytest.fixture
def held(tmp_path: Path) -> dict[str, bytes]:
    """The files of a certificate that was just issued, for two hours of which one is over."""
    place = tmp_path / "before"
    place.mkdir()
    return content(refreshed(Server(), place, {}))


def later(seconds: float) -> Server:
    return Server(now=NOW + timedelta(seconds=seconds))


def test_the_files_of_a_new_certificate(held: dict[str, bytes], tmp_path: Path) -> None:
    """The secret ones are marked, for their mode."""
    assert held[PAIR] == held[KEY] + held[CHAIN]
    assert held[BUNDLE] == pem(chains.ROOT)
    server = Server()
    secret = [one.name for one in refreshed(server, tmp_path, {}).files if one.is_secret]
    assert secret == [KEY, PAIR]
    assert server.created[0]["spec"]["signerName"] == SIGNER


def test_a_certificate_is_kept_until_it_is_due(held: dict[str, bytes], tmp_path: Path) -> None:
    """At 60 to 70 % of its two hours; with the bundle of now."""
    for seconds, is_kept in ((0, True), (60 * 11, True), (60 * 25, False), (3600, False)):
        place = tmp_path / str(seconds)
        place.mkdir()
        server = later(seconds)
        found = content(refreshed(server, place, held))
        assert (found[CHAIN] == held[CHAIN]) == is_kept, seconds
        assert bool(server.created) != is_kept


def test_a_certificate_with_a_request_under_way_waits_for_it(
    held: dict[str, bytes], tmp_path: Path
) -> None:
    """The next one was requested before a restart."""
    server = Server()
    current = a_round(server, tmp_path)
    refreshed(server, tmp_path, {})
    assert current.state.request("web") is not None

    found = content(CertificateContent(WANTED).refresh("web", held, current))

    assert found[CHAIN] != held[CHAIN]


@pytest.mark.parametrize(
    "wanted",
    [
        Certificate(signer=SIGNER, dns_names=(NAME, "b.example.com")),
        Certificate(signer=SIGNER, dns_names=(NAME,), common_name="web"),
        Certificate(signer=SIGNER, dns_names=(NAME,), key="ECDSA-P384"),
    ],
)
def test_another_certificate_than_configured_is_replaced(
    held: dict[str, bytes], tmp_path: Path, wanted: Certificate
) -> None:
    assert CertificateContent(WANTED).life(held) is not None
    assert CertificateContent(wanted).life(held) is None
    assert content(refreshed(Server(), tmp_path, held, wanted))[CHAIN] != held[CHAIN]


@pytest.mark.parametrize("missing", [CHAIN, KEY])
def test_half_a_certificate_is_none(held: dict[str, bytes], missing: str) -> None:
    assert CertificateContent(WANTED).life({**held, missing: b""}) is None


@pytest.mark.parametrize("reuse", [True, False])
def test_the_key_is_a_new_one_unless_it_is_kept(
    held: dict[str, bytes], tmp_path: Path, *, reuse: bool
) -> None:
    wanted = Certificate(signer=SIGNER, dns_names=(NAME,), reuse_key=reuse)

    found = content(refreshed(later(3000), tmp_path, held, wanted))

    assert found[CHAIN] != held[CHAIN]
    assert (found[KEY] == held[KEY]) == reuse


def test_nothing_is_requested_that_nobody_can_check(tmp_path: Path) -> None:
    """The bundle of another signer is none."""
    server = Server()
    server.bundles = {OTHER_SIGNER: server.bundles[SIGNER]}

    with pytest.raises(ContentFailed, match="has no trust bundle"):
        refreshed(server, tmp_path, {})
    assert server.created == []


def test_a_certificate_that_does_not_fit_is_not_written(tmp_path: Path) -> None:
    """Of another authority, or expired already."""
    stranger, slow = Server(), Server(lasts=timedelta(0))
    stranger.root = chains.OTHER_P256

    with pytest.raises(UntrustedChain):
        refreshed(stranger, tmp_path, {})
    place = tmp_path / "slow"
    place.mkdir()
    with pytest.raises(CertificateUnfit, match="expired already"):
        refreshed(slow, place, {})


def placing(name: str, signer: str, **meta: Any) -> dict[str, Any]:
    source = {"podCertificate": {"signerName": signer}}
    one = pod(name, **{"uid": f"uid-{name}", **meta})
    one["spec"]["volumes"] = [{"projected": {"sources": [source]}}]
    return one


def test_an_account_gets_one_where_a_pod_places_it_for_that_signer(tmp_path: Path) -> None:
    """Not by a Pod for another signer or of another namespace, and by none that only runs."""
    server = Server()
    server.pods = [
        placing("mail", OTHER_SIGNER),
        placing("elsewhere", SIGNER, namespace="mail"),
        pod("plain", uid="uid-plain"),
        placing("right", SIGNER),
    ]

    fresh = refreshed(server, tmp_path, {}, ACCOUNT)

    spec = server.created[0]["spec"]
    assert (spec["podName"], spec["podUID"]) == ("right", "uid-right")
    assert (spec["serviceAccountName"], spec["nodeName"]) == ("front", HOST)
    assert fresh.life.expires == NOW + HOUR


def test_an_account_that_no_pod_places_gets_none(tmp_path: Path) -> None:
    server = Server()
    server.pods = [placing("mail", OTHER_SIGNER), placing("elsewhere", SIGNER, namespace="mail")]

    with pytest.raises(ContentFailed, match=f"orchid host place {HOST} web/front"):
        refreshed(server, tmp_path, {}, ACCOUNT)
    assert server.created == []
