"""The attack: to have keys, audiences or URLs of one issuer count for another."""

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import jwt
import pytest
import trustme

from orchid.features.exchange.ports import ConfiguredExchange
from orchid.features.sign_in.parts import OutsideIssuers
from tests.api.world import Api, api
from tests.e2e.outside_issuer import AUDIENCE, OutsideIssuer, write_configuration
from tests.security.exchanging import (
    AGREES,
    GITHUB_CLAIMS,
    exchange,
    exchanging,
    keys_fetched,
    make_policy,
    review,
)

WHO = "/apis/authentication.orch.io/v1/selfsubjectreviews"


@pytest.fixture(scope="module")
def issuer() -> Iterator[OutsideIssuer]:
    with OutsideIssuer() as made:
        yield made


@pytest.fixture
def other() -> Iterator[OutsideIssuer]:
    """Another issuer, whose key has the same id."""
    with OutsideIssuer() as made:
        yield made


async def refreshed(server: Api, url: str) -> str:
    """Fetch the keys of an issuer now; returns the problem, if there is one."""
    parts = server.server.context.port(ConfiguredExchange).parts
    assert parts is not None
    source = parts.subjects._followed[url].source
    await source.refresh()
    return source.problem


async def test_a_key_counts_for_its_issuer_only(
    server_files: Path, issuer: OutsideIssuer, other: OutsideIssuer, tmp_path: Path
) -> None:
    """Also if both issuers have a key of the same id; the audiences are those of the issuer."""
    second = other.described(["https://second.example"])
    write_configuration(tmp_path / "exchange.json", issuer.described(), second)
    assert issuer.kid == other.kid
    async with exchanging(server_files, issuer, tmp_path) as server:
        await make_policy(server, issuer)

        good = await exchange(server, issuer.github())
        forged = await exchange(server, other.github(iss=issuer.url))
        foreign = await exchange(server, other.github(aud="https://second.example"))
        confused = await exchange(server, other.github(aud=AUDIENCE))
        crossed = await exchange(server, issuer.github(aud="https://second.example"))

    assert good.status == 200
    assert "cannot be verified" in forged.json["error_description"]
    assert "no policy" in foreign.json["error_description"]
    assert "audience" in confused.json["error_description"]
    assert "audience" in crossed.json["error_description"]


async def test_a_subject_is_limited_for_its_issuer_only(
    server_files: Path, issuer: OutsideIssuer, other: OutsideIssuer, tmp_path: Path
) -> None:
    """Another issuer may use the same name, and must not use up its allowance."""
    write_configuration(tmp_path / "exchange.json", issuer.described(), other.described())
    async with exchanging(server_files, issuer, tmp_path) as server:
        parts = server.server.context.port(ConfiguredExchange).parts
        assert parts is not None
        while not parts.exchanger._limit.wait_for((issuer.url, "somebody")):
            pass

        limited = await exchange(server, issuer.token())
        served = await exchange(server, other.token())

    assert (limited.status, served.status) == (429, 400)
    assert "no policy" in served.json["error_description"]


async def test_an_issuer_in_both_files_has_its_keys_fetched_once(
    server_files: Path, issuer: OutsideIssuer, tmp_path: Path
) -> None:
    """Each file uses the keys of its own algorithms, and audiences of its own."""
    described = {"url": issuer.url, "audiences": ["https://api.example"]}
    username = {"claim": "sub", "prefix": "outside:"}
    authority = {"certificateAuthority": issuer.trusted}
    document = {
        "apiVersion": "apiserver.config.orch.io/v1",
        "kind": "AuthenticationConfiguration",
        "jwt": [{"issuer": {**described, **authority}, "claimMappings": {"username": username}}],
        "anonymous": {"enabled": True, "conditions": [{"path": "/livez"}]},
    }
    file = tmp_path / "authentication.json"
    file.write_text(json.dumps(document))
    issuer.exchange_configuration(tmp_path / "exchange.json")
    issuer.fetches.clear()
    async with api(
        server_files,
        token_exchange_config=str(tmp_path / "exchange.json"),
        authentication_config=str(file),
    ) as server:
        parts = server.server.context.port(ConfiguredExchange).parts
        outside = server.server.context.port(OutsideIssuers).authenticator
        assert outside is not None
        running = [asyncio.create_task(work) for work in (outside.run(), parts.run())]
        try:
            await keys_fetched(server)
            await server.account("deployer", "ci", annotations=AGREES)
            await make_policy(server, issuer)
            exchanged = await exchange(server, issuer.github())
            direct = issuer.github(aud="https://api.example")
            who = await server.call("POST", WHO, {}, token=direct)
            crossed = await server.call("POST", WHO, {}, token=issuer.github())
        finally:
            for task in running:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task

    assert (exchanged.status, who.status, crossed.status) == (200, 201, 401)
    assert issuer.fetches.count("/keys") == 1


async def test_an_algorithm_that_is_not_accepted_is_refused(
    server_files: Path, issuer: OutsideIssuer, tmp_path: Path
) -> None:
    """As soon as the file says so, for tokens that were exchanged before, too."""
    file = tmp_path / "exchange.json"
    async with exchanging(server_files, issuer, tmp_path) as server:
        await make_policy(server, issuer)
        token = issuer.github()
        before = await exchange(server, token)
        issuer.exchange_configuration(file, algorithms=["ES256"])
        parts = server.server.context.port(ConfiguredExchange).parts
        assert parts is not None
        await parts.subjects.reload()
        after = await exchange(server, token)

    assert (before.status, after.status) == (200, 400)
    assert "'RS256' is not accepted from this issuer" in after.json["error_description"]


async def test_a_new_ca_of_an_issuer_is_used(
    server_files: Path, issuer: OutsideIssuer, tmp_path: Path
) -> None:
    """As soon as the file has it; keys from a server of another CA do not count."""
    file = tmp_path / "exchange.json"
    other = trustme.CA().cert_pem.bytes().decode()
    issuer.exchange_configuration(file, certificateAuthority=other)
    async with exchanging(server_files, issuer, tmp_path, waits=False) as server:
        await make_policy(server, issuer)
        before = await exchange(server, issuer.github())
        issuer.exchange_configuration(file)
        parts = server.server.context.port(ConfiguredExchange).parts
        assert parts is not None
        await parts.subjects.reload()
        await keys_fetched(server)
        after = await exchange(server, issuer.github())

    assert (before.status, after.status) == (503, 200)


PAGES: dict[str, tuple[str, Any, str]] = {
    "a redirect of the keys": ("/keys", "/elsewhere", "redirect"),
    "a redirect to another host": ("/keys", "https://127.0.0.2/latest/meta-data", "redirect"),
    "a huge set of keys": ("/keys", b'{"keys":[' + b" " * (2 << 20) + b"]}", "large"),
    "no JSON": ("/keys", b"<html>", "not the JSON"),
    "keys of another issuer": (
        "/.well-known/openid-configuration", {"issuer": "https://evil.example"}, "another issuer",
    ),
    "keys without TLS": (
        "/.well-known/openid-configuration", {"jwks_uri": "http://127.0.0.1/keys"}, "https",
    ),
    "a host that cannot be": (
        "/.well-known/openid-configuration", {"jwks_uri": "https://a..example/keys"}, "host",
    ),
    "a long name": (
        "/.well-known/openid-configuration", {"jwks_uri": f"https://{'a' * 70}.example/"}, "host",
    ),
    "a file as keys": (
        "/.well-known/openid-configuration", {"jwks_uri": "file:///etc/passwd"}, "https",
    ),
}  # fmt: skip


async def test_documents_of_an_issuer_do_not_lead_elsewhere(
    server_files: Path, other: OutsideIssuer, tmp_path: Path
) -> None:
    """Nothing is fetched from there, and the keys that were fetched before stay."""
    async with exchanging(server_files, other, tmp_path) as server:
        await make_policy(server, other)
        for path, page, problem in PAGES.values():
            other.publish()
            found = {**other.pages[path], **page} if isinstance(page, dict) else page
            other.pages[path] = found
            assert problem in await refreshed(server, other.url)
            assert (await exchange(server, other.github())).status == 200

    assert "/elsewhere" not in other.fetches


async def test_an_issuer_that_does_not_answer_delays_no_other(
    server_files: Path, issuer: OutsideIssuer, other: OutsideIssuer, tmp_path: Path
) -> None:
    """Its own tokens wait, and others are exchanged meanwhile."""
    released = threading.Event()
    other.pages["/.well-known/openid-configuration"] = released
    write_configuration(tmp_path / "exchange.json", issuer.described(), other.described())
    async with exchanging(server_files, issuer, tmp_path, waits=False) as server:
        parts = server.server.context.port(ConfiguredExchange).parts
        assert parts is not None
        await parts.subjects._followed[issuer.url].source.newer()
        await make_policy(server, issuer)
        waiting = asyncio.create_task(exchange(server, other.github(), address="192.0.2.9:1"))
        served = await exchange(server, issuer.github())
        is_waiting = not waiting.done()
        released.set()
        late = await waiting

    assert served.status == 200
    assert is_waiting
    assert late.status == 503


async def test_tokens_of_a_removed_issuer_end_by_themselves(
    server_files: Path, issuer: OutsideIssuer, other: OutsideIssuer, tmp_path: Path
) -> None:
    """No new ones are issued; those that were live until they expire, or the policy is deleted."""
    async with exchanging(server_files, issuer, tmp_path) as server:
        await make_policy(server, issuer)
        outside = issuer.github()
        token = (await exchange(server, outside)).json["access_token"]
        other.exchange_configuration(tmp_path / "exchange.json")
        parts = server.server.context.port(ConfiguredExchange).parts
        assert parts is not None
        await parts.subjects.reload()

        again = await exchange(server, outside)
        alive = await review(server, token)
        await server.call(
            "DELETE",
            "/apis/identity.orch.io/v1alpha1/namespaces/ci/tokenexchangepolicies/acme-deploy",
        )
        ended = await review(server, token)

    assert again.status == 400
    assert alive["authenticated"] is True
    assert "authenticated" not in ended


async def test_values_are_no_patterns(
    server_files: Path, issuer: OutsideIssuer, tmp_path: Path
) -> None:
    """A star, a prefix or another case equals nothing but itself."""
    async with exchanging(server_files, issuer, tmp_path) as server:
        for number, ref in enumerate(
            ("*", "refs/heads/*", "refs/heads/", "REFS/HEADS/MAIN", "^.*$")
        ):
            await make_policy(server, issuer, f"p{number}", claims={**GITHUB_CLAIMS, "ref": ref})

        plain = await exchange(server, issuer.github())
        star = await exchange(server, issuer.github(ref="*"))

    assert (plain.status, star.status) == (400, 200)


async def test_usual_forms_of_a_request_are_accepted(
    server_files: Path, issuer: OutsideIssuer, tmp_path: Path
) -> None:
    """A media type with a charset or in capitals, a list of audiences, a clock that is ahead, a
    token with the line end of its file."""
    async with exchanging(server_files, issuer, tmp_path) as server:
        await make_policy(server, issuer)
        media = (
            "application/x-www-form-urlencoded; charset=UTF-8",
            "Application/X-WWW-Form-URLencoded",
        )
        for one in media:
            answer = await exchange(server, issuer.github(), headers={"content-type": one})
            assert answer.status == 200, answer.text
        now = jwt.decode(issuer.github(), options={"verify_signature": False})["iat"]
        ahead = await exchange(server, issuer.github(iat=now + 30, nbf=now + 30))
        listed = await exchange(server, issuer.github(aud=["https://other.example", AUDIENCE]))
        line = await exchange(server, issuer.github() + "\r\n")

    assert (ahead.status, listed.status, line.status) == (200, 200, 200)


async def test_a_cluster_is_an_issuer_whose_accounts_are_compared_by_their_uid(
    server_files: Path, issuer: OutsideIssuer, tmp_path: Path
) -> None:
    """An account of the same name that was created again is another one."""
    rule = {"expression": "claims['kubernetes.io'].serviceaccount.uid == 'u-1'"}
    subject = "system:serviceaccount:jobs:builder"

    def token(uid: str) -> str:
        account = {"namespace": "jobs", "serviceaccount": {"name": "builder", "uid": uid}}
        return issuer.token(sub=subject, aud=[AUDIENCE], **{"kubernetes.io": account})

    async with exchanging(server_files, issuer, tmp_path) as server:
        await make_policy(server, issuer, claims={"sub": subject}, rules=[rule])
        same, other = await exchange(server, token("u-1")), await exchange(server, token("u-2"))
        missing = await exchange(server, issuer.token(sub=subject))

    assert (same.status, other.status, missing.status) == (200, 400, 400)
