"""Front-proxy headers prove nothing by themselves (kubernetes#119631, Adyen/kubectl-rexec#171)."""

import random
import string
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from orchid.kernel.http.messages import Peer
from orchid.kernel.settings.errors import BadSettings
from tests.api.callers import authority, certificate, front_proxy_settings
from tests.api.world import BOB, Answer, Api, api
from tests.security.certified import cluster_authority, issued
from tests.unit.features.beside import MovingClock

REVIEW = "/apis/authentication.orch.io/v1/selfsubjectreviews"
PROXIES, STRANGERS = authority(), authority()
FORGED = {"x-remote-user": "root", "x-remote-group": "system:masters", "x-remote-uid": "0"}


async def who(
    server: Api, headers: dict[str, str], peer: Peer | None = None, token: str | None = None
) -> Answer:
    return await server.call("POST", REVIEW, {}, token=token, headers=headers, peer=peer)


def user_of(answer: Answer) -> Any:
    assert answer.status == 201, answer.text
    return answer.json["status"]["userInfo"]


@pytest.mark.parametrize("seed", range(4))
async def test_headers_of_any_configured_name_mean_nothing_without_the_proxys_certificate(
    seed: int, server_files: Path, tmp_path: Path
) -> None:
    """For random names: without credentials 401, otherwise who the credential says, unchanged."""
    chance = random.Random(seed)
    users, groups, prefixes = (
        [f"X-{''.join(chance.choices(string.ascii_letters, k=8))}-{i}" for i in range(4)]
        for _ in range(3)
    )
    settings = front_proxy_settings(tmp_path, PROXIES) | {
        "requestheader_username_headers": users,
        "requestheader_group_headers": groups,
        "requestheader_extra_headers_prefix": prefixes,
    }
    forged = dict.fromkeys((name.lower() for name in users), "root")
    forged |= dict.fromkeys((name.lower() for name in groups), "system:masters")
    forged |= {f"{name.lower()}scopes": "all" for name in prefixes}
    jane = issued(cluster_authority(server_files), "jane", "dev")
    async with api(server_files, **settings) as server:
        nobody = [await who(server, {name: value}) for name, value in forged.items()]
        alone = await who(server, forged | FORGED)
        bob = user_of(await who(server, forged | FORGED, token=BOB))
        certified = user_of(await who(server, forged | FORGED, jane.peer))
        proxy = Peer("", certificate(PROXIES, "front-proxy"))
        believed = user_of(await who(server, forged, proxy))

    assert {answer.status for answer in (*nobody, alone)} == {401}
    assert (bob["username"], bob["groups"]) == ("bob", ["system:authenticated"])
    assert (certified["username"], certified["groups"]) == ("jane", ["dev", "system:authenticated"])
    assert not {"scopes", "all"} & {*bob.get("extra", {}), *certified["extra"]}
    assert believed["username"] == "root"


@pytest.mark.parametrize(
    "peer",
    [
        pytest.param(Peer("", certificate(STRANGERS, "front-proxy")), id="wrong authority"),
        pytest.param(Peer("", certificate(PROXIES, "somebody")), id="wrong common name"),
        pytest.param(Peer("", certificate(PROXIES, "front-proxy.evil")), id="longer common name"),
        pytest.param(Peer("", certificate(PROXIES, "FRONT-PROXY")), id="other letters"),
        pytest.param(Peer("", b"\x30\x03\x02\x01\x00"), id="no certificate at all"),
        pytest.param(Peer(""), id="nothing"),
    ],
)
async def test_headers_with_the_wrong_certificate_are_refused(
    peer: Peer, server_files: Path, tmp_path: Path
) -> None:
    """Wrong authority, right authority with a wrong name, or nothing: 401, never the named user."""
    async with api(server_files, **front_proxy_settings(tmp_path, PROXIES)) as server:
        answer = await who(server, FORGED, peer)

    assert answer.status == 401


async def test_a_clients_certificate_does_not_make_it_a_proxy(
    server_files: Path, tmp_path: Path
) -> None:
    """Of the clients' authority, even a proxy's name is only a user's name."""
    client = issued(cluster_authority(server_files), "front-proxy")
    async with api(server_files, **front_proxy_settings(tmp_path, PROXIES)) as server:
        user = user_of(await who(server, FORGED, client.peer))

    assert user["username"] == "front-proxy"
    assert user["groups"] == ["system:authenticated"]


async def test_without_a_configured_authority_no_proxy_is_believed(server: Api) -> None:
    """A server that knows of no proxy reads none of its headers."""
    refused = await who(server, FORGED, Peer("", certificate(PROXIES, "front-proxy")))
    bob = user_of(await who(server, FORGED, token=BOB))

    assert refused.status == 401
    assert bob["username"] == "bob"


async def test_a_proxys_expired_certificate_is_refused(
    server_files: Path, tmp_path: Path, clock: MovingClock
) -> None:
    """Also on a connection on which it was good a moment ago."""
    peer = Peer("", certificate(PROXIES, "front-proxy"))
    async with api(server_files, **front_proxy_settings(tmp_path, PROXIES)) as server:
        before = await who(server, FORGED, peer)
        clock.ahead += timedelta(hours=2)
        after = await who(server, FORGED, peer)

    assert (before.status, after.status) == (201, 401)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"requestheader_client_ca_file": ""}, "needs --requestheader-client-ca-file"),
        ({"requestheader_client_ca_file": "none.crt"}, "cannot read none.crt"),
        ({"requestheader_username_headers": []}, "must name at least one header"),
        ({"requestheader_group_headers": [" "]}, "may not be empty"),
    ],
)
async def test_a_proxy_that_could_not_prove_itself_stops_the_start(
    change: dict[str, Any], message: str, server_files: Path, tmp_path: Path
) -> None:
    """Headers without an authority, or the reverse, are a mistake and not a default."""
    settings = front_proxy_settings(tmp_path, PROXIES) | change

    with pytest.raises(BadSettings, match=message):
        async with api(server_files, **settings):
            pass


async def test_an_authority_of_clients_and_proxies_needs_listed_names(server_files: Path) -> None:
    """Otherwise every client could speak for everybody."""
    shared = {
        "requestheader_client_ca_file": str(server_files / "ca.crt"),
        "requestheader_username_headers": ["X-Remote-User"],
    }
    with pytest.raises(BadSettings, match="overlapping certificates"):
        async with api(server_files, **shared):
            pass
    async with api(server_files, **shared, requestheader_allowed_names=["front-proxy"]) as server:
        jane = issued(cluster_authority(server_files), "jane")
        user = user_of(await who(server, FORGED, jane.peer))
    assert user["username"] == "jane"
