"""Tokens: forged, stolen, outlived, used elsewhere, or used to find something out."""

import asyncio
import base64
import hashlib
import hmac
import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from orchid.features.accounts.kinds.token_review import accepted
from orchid.features.accounts.token_issuer import TokenIssuer
from orchid.features.token_keys import followed_keys
from orchid.features.token_keys.files.signing_key_file import signing_key_file
from orchid.features.token_keys.followed_keys import FollowedKeys
from orchid.kernel.access.authenticators.audiences import shared
from orchid.kernel.credentials import keys
from orchid.kernel.credentials.keys import generate
from orchid.kernel.engine.interfaces import Authenticated
from orchid.kernel.http.messages import Peer
from orchid.kernel.wire.user import UserInfo
from tests.api.world import ADMIN, ALICE, BOB, ISSUER, Api, api
from tests.unit.features.beside import MovingClock

ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
SECRETS = "/api/v1/namespaces/default/secrets"
PODS = "/api/v1/namespaces/default/pods"
RBAC = "/apis/rbac.authorization.orch.io/v1"
TOKEN_REVIEWS = "/apis/authentication.orch.io/v1/tokenreviews"
SELF = "/apis/authentication.orch.io/v1/selfsubjectreviews"


async def reviewed(server: Api, token: str, *audiences: str) -> Any:
    body = {"spec": {"token": token, "audiences": list(audiences)}}
    return (await server.make(TOKEN_REVIEWS, body))["status"]


async def gets_in(server: Api, token: str) -> bool:
    """Whether a token is good, by both of the ways to find out; they may never disagree."""
    opens = (await server.call("POST", SELF, {}, token=token)).status
    assert opens in (201, 401)
    review = await reviewed(server, token)
    assert review.get("authenticated", False) == (opens == 201), review
    return opens == 201


async def allow(server: Api, user: str, **rule: Any) -> None:
    """Give a user one right in the namespace `default`."""
    meta = {"metadata": {"name": f"{user}-{rule['resources'][0].replace('/', '-')}"}}
    where = f"{RBAC}/namespaces/default"
    await server.make(f"{where}/roles", {**meta, "rules": [{"apiGroups": [""], **rule}]})
    await server.make(
        f"{where}/rolebindings",
        {
            **meta,
            "roleRef": {
                "kind": "Role",
                "name": meta["metadata"]["name"],
                "apiGroup": "rbac.authorization.orch.io",
            },
            "subjects": [{"kind": "User", "name": user, "apiGroup": "rbac.authorization.orch.io"}],
        },
    )


# --- forged ---------------------------------------------------------------------------------------


def b64(data: bytes | dict[str, Any]) -> str:
    raw = data if isinstance(data, bytes) else json.dumps(data).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def forgeries(good: str, public: ec.EllipticCurvePublicKey) -> Iterator[tuple[str, str]]:
    """Every known way to confuse a verifier, applied to a token that is good."""
    head, body, tail = good.split(".")
    header = json.loads(base64.urlsafe_b64decode(head + "=="))
    for name in ("none", "None", "nOnE", "NONE", ""):
        for signature in ("", tail):
            yield f"alg={name!r}", f"{b64({**header, 'alg': name})}.{body}.{signature}"
    encoding, form = serialization.Encoding, serialization.PublicFormat
    public_forms = {
        "pem": public.public_bytes(encoding.PEM, form.SubjectPublicKeyInfo),
        "der": public.public_bytes(encoding.DER, form.SubjectPublicKeyInfo),
        "ssh": public.public_bytes(encoding.OpenSSH, form.OpenSSH),
        "point": public.public_bytes(encoding.X962, form.UncompressedPoint),
        "empty": b"",
    }
    for label, secret in public_forms.items():
        for algorithm, digest in (("HS256", hashlib.sha256), ("HS512", hashlib.sha512)):
            signed = f"{b64({**header, 'alg': algorithm})}.{body}"
            made = hmac.new(secret, signed.encode(), digest).digest()
            yield f"{algorithm} with {label}", f"{signed}.{b64(made)}"
    stranger = generate()
    for label, change in {
        "own jwk": {"jwk": stranger.public.jwk()},
        "jku": {"jku": "https://evil.test/keys"},
        "x5u": {"x5u": "https://evil.test/chain"},
        "x5c": {"x5c": ["MIIB"]},
        "crit": {"crit": ["exp"]},
        "b64": {"b64": False, "crit": ["b64"]},
        "zip": {"zip": "DEF"},
        "wrong kid": {"kid": stranger.public.kid},
        "path as kid": {"kid": "../../../dev/null"},
        "query as kid": {"kid": "' OR 1=1 --"},
        "long header": {"x": "y" * 20_000},
        "encrypted": {"enc": "A256GCM", "alg": "dir"},
    }.items():
        signed = f"{b64({**header, **change})}.{body}"
        made = stranger.sign(signed.encode())
        yield f"{label}, signed by a stranger", f"{signed}.{b64(made)}"
        yield f"{label}, old signature", f"{signed}.{tail}"
    claims = json.loads(base64.urlsafe_b64decode(body + "=="))
    twice = json.dumps(claims)[:-1] + ', "sub": "system:serviceaccount:kube-system:root"}'
    yield "repeated claim", f"{head}.{b64(twice.encode())}.{tail}"
    yield "other subject", f"{head}.{b64({**claims, 'sub': 'system:admin'})}.{tail}"
    size = len(base64.urlsafe_b64decode(tail + "=="))
    for label, signature in {
        "zero signature": bytes(size),
        "r = 0": bytes(size // 2) + b"\x01" * (size // 2),
        "s = 0": b"\x01" * (size // 2) + bytes(size // 2),
        "DER signature": b"\x30\x06\x02\x01\x01\x02\x01\x01",
        "no signature": b"",
    }.items():
        yield label, f"{head}.{body}.{b64(signature)}"
    for label, token in {
        "padding": f"{head}.{body}.{tail}=",
        "standard alphabet": f"{head}.{body}.{tail[:-1]}+",
        "line break": f"{head}.{body}.{tail[:20]}\n{tail[20:]}",
        "four parts": f"{good}.{tail}",
        "two parts": f"{head}.{body}",
        "five parts": f"{head}..{body}.{tail}.{tail}",
        "JSON form": json.dumps({"protected": head, "payload": body, "signature": tail}),
        "last letter": good[:-1] + ("B" if good[-1] == "A" else "A"),
    }.items():
        yield label, token


async def test_no_forged_token_gets_in(server: Api) -> None:
    """alg none, HMAC by the public key, keys the token brings along, and other confusion.

    (CVE-2022-29217, CVE-2026-48526, mpdavis/python-jose#419.)
    """
    await server.account("robot")
    good = await server.token("robot")
    key = serialization.load_pem_private_key(
        signing_key_file(server.server.settings).read_bytes(), None
    )
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    assert await gets_in(server, good)

    accepted = [
        label for label, token in forgeries(good, key.public_key()) if await gets_in(server, token)
    ]

    assert accepted == []


async def test_a_rightly_signed_token_of_another_issuer_is_not_ours(server: Api) -> None:
    """Our key under another's name is nobody's token; the name is compared as a whole string."""
    await server.account("robot")
    good = await server.token("robot")
    signing = keys.load_signing_key(signing_key_file(server.server.settings))
    claims = json.loads(base64.urlsafe_b64decode(good.split(".")[1] + "=="))

    for issuer in (f"{ISSUER}/", ISSUER.upper(), f"{ISSUER}.evil", ISSUER[:-1], "", [ISSUER]):
        head = b64({"alg": signing.public.algorithm, "kid": signing.public.kid})
        signed = f"{head}.{b64({**claims, 'iss': issuer})}"
        token = f"{signed}.{b64(signing.sign(signed.encode()))}"
        assert not await gets_in(server, token), issuer


# --- stolen, or outlived --------------------------------------------------------------------------


async def test_a_recreated_account_does_not_inherit_tokens(server: Api) -> None:
    """Deleted and made again between issue and review, the account is another one."""
    first = await server.account("robot")
    token = await server.token("robot")
    await server.call("DELETE", f"{ACCOUNTS}/robot")
    gone = await gets_in(server, token)
    second = await server.account("robot")

    assert first["metadata"]["uid"] != second["metadata"]["uid"]
    assert not gone
    assert not await gets_in(server, token)


async def test_an_account_recreated_while_its_token_is_signed_does_not_get_it(
    server: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The token names the account that was looked up, not the one of the same name after it."""
    first = await server.account("robot")
    sign = TokenIssuer.sign

    async def swapped_and_signed(self: TokenIssuer, *given: Any) -> Any:
        await server.call("DELETE", f"{ACCOUNTS}/robot")
        await server.account("robot")
        return await sign(self, *given)

    monkeypatch.setattr(TokenIssuer, "sign", swapped_and_signed)
    token = await server.token("robot")

    claims = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))
    assert claims["orch.io"]["serviceaccount"]["uid"] == first["metadata"]["uid"]
    assert not await gets_in(server, token)


async def test_the_uid_of_an_earlier_account_gets_no_token(server: Api) -> None:
    """Between read and sign: the request is for that very account, and that one is gone."""
    first = await server.account("robot")
    await server.call("DELETE", f"{ACCOUNTS}/robot")
    await server.account("robot")

    body = {"metadata": {"uid": first["metadata"]["uid"]}, "spec": {"audiences": []}}
    answer = await server.call("POST", f"{ACCOUNTS}/robot/token", body)

    assert answer.status == 409


async def test_no_token_of_a_pod_outlives_the_maximum(
    server_files: Path, clock: MovingClock
) -> None:
    """A node agent's request is answered with a longer life, but never beyond what was set."""
    longest = {"service_account_max_token_expiration": "2h"}
    async with api(server_files, **longest) as server:
        await server.account("robot")
        spec = {"serviceAccountName": "robot", "containers": [{"name": "c", "image": "i"}]}
        await server.make(PODS, {"metadata": {"name": "p"}, "spec": spec})
        bound = {"kind": "Pod", "apiVersion": "v1", "name": "p"}
        token = await server.token("robot", expirationSeconds=3607, boundObjectRef=bound)
        clock.ahead = timedelta(hours=1, minutes=50)
        within = await gets_in(server, token)
        clock.ahead = timedelta(hours=2, minutes=2)

        assert within
        assert not await gets_in(server, token)


@pytest.mark.parametrize(
    ("kind", "where", "spec"),
    [("Secret", SECRETS, {}), ("Pod", PODS, {"serviceAccountName": "robot"})],
)
async def test_a_token_dies_with_what_it_is_bound_to(
    kind: str, where: str, spec: dict[str, Any], server: Api
) -> None:
    """In the very next request, and an object of the same name does not revive it."""
    await server.account("robot")
    containers = {"containers": [{"name": "c", "image": "i"}]}
    body: dict[str, Any] = {"metadata": {"name": "bound"}}
    if spec:
        body["spec"] = spec | containers
    await server.make(where, body)
    reference = {"kind": kind, "apiVersion": "v1", "name": "bound"}
    token = await server.token("robot", boundObjectRef=reference)
    before = await gets_in(server, token)
    await server.call("DELETE", f"{where}/bound?gracePeriodSeconds=0")
    after = await gets_in(server, token)
    await server.make(where, body)

    assert (before, after) == (True, False)
    assert not await gets_in(server, token)


async def test_a_review_never_outlives_the_token(server: Api, clock: MovingClock) -> None:
    """A token that was just accepted is refused once it has expired."""
    await server.account("robot")
    token = await server.token("robot", expirationSeconds=600)
    good = [await gets_in(server, token) for _ in range(3)]
    clock.ahead += timedelta(seconds=600 + 30)
    within_leeway = await gets_in(server, token)
    clock.ahead += timedelta(seconds=32)

    assert good == [True, True, True]
    assert within_leeway
    assert not await gets_in(server, token)


@pytest.mark.parametrize(
    ("seconds", "good"),
    [(-3600, False), (-65, False), (-55, True), (0, True), (3600 + 55, True), (3600 + 65, False)],
)
async def test_a_clock_that_jumps_is_forgiven_one_minute(
    seconds: int, good: bool, server: Api, clock: MovingClock
) -> None:
    """The stated leeway of nbf and exp; an hour back or forth is beyond it."""
    await server.account("robot")
    token = await server.token("robot")
    clock.ahead += timedelta(seconds=seconds)

    assert await gets_in(server, token) is good


async def test_a_clock_that_jumps_back_and_forth_leaves_nothing_wrong(
    server: Api, clock: MovingClock
) -> None:
    """After a jump of an hour and back, the token is what it was before."""
    await server.account("robot")
    token = await server.token("robot", expirationSeconds=1800)
    found = []
    for hours in (0, 1, 0, -1, 0):
        clock.ahead = timedelta(hours=hours)
        found.append(await gets_in(server, token))

    assert found == [True, False, True, False, True]


async def test_a_planned_change_of_keys_refuses_no_live_token_and_an_emergency_all_old_ones(
    server_files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Publish, then sign, then remove: what each step does to tokens that are under way."""
    monkeypatch.setattr(followed_keys, "LOOK_AT_KEYS_EVERY", 0.001)
    files = {name: tmp_path / f"{name}.key" for name in ("old", "new")}
    for file in files.values():
        file.touch(mode=0o600)
        file.write_text(generate().pem().reveal())
    signing, verifying = tmp_path / "signing.key", tmp_path / "verifying.pem"
    signing.touch(mode=0o600)
    verifying.touch(mode=0o600)

    def write(signs: str, *verifies: str) -> None:
        verifying.write_text("".join(files[name].read_text() for name in verifies))
        signing.write_text(files[signs].read_text())

    write("old", "old")
    given = {
        "service_account_signing_key_file": str(signing),
        "service_account_key_file": [str(verifying)],
    }
    async with api(server_files, **given) as server:
        await server.account("robot")

        taken_up = asyncio.Event()

        async def changed() -> None:
            taken_up.set()

        async def after(signs: str, *verifies: str) -> None:
            """Write the files, and wait until the server has taken them up by itself."""
            taken_up.clear()
            write(signs, *verifies)
            await asyncio.wait_for(taken_up.wait(), 10)

        following = asyncio.create_task(server.server.context.port(FollowedKeys).follow(changed))
        old = await server.token("robot")
        await after("old", "old", "new")
        published = await gets_in(server, old)
        await after("new", "old", "new")
        new = await server.token("robot")
        planned = [await gets_in(server, token) for token in (old, new)]
        await after("new", "new")
        emergency = [await gets_in(server, token) for token in (old, new)]
        following.cancel()

    assert published
    assert planned == [True, True]
    assert emergency == [False, True]


# --- used elsewhere -------------------------------------------------------------------------------


async def test_a_token_for_another_audience_does_not_open_the_api(server: Api) -> None:
    """It is good for its audience, when that one asks, and for nobody else."""
    await server.account("robot")
    token = await server.token("robot", audiences=["vault"])

    assert (await server.call("POST", SELF, {}, token=token)).status == 401
    assert (await reviewed(server, token, "vault"))["audiences"] == ["vault"]
    assert "authenticated" not in await reviewed(server, token)
    assert "authenticated" not in await reviewed(server, token, "other", ISSUER)


class Compared(str):
    """An audience that counts how often one is compared with another."""

    __slots__ = ()
    __hash__ = str.__hash__
    times = 0

    def __eq__(self, other: object) -> bool:
        Compared.times += 1
        return str.__eq__(self, other)


def test_thousands_of_audiences_are_not_each_compared_with_all_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """5,000 audiences of a review and 900 of a token held the event loop for 85 ms."""
    monkeypatch.setattr(Compared, "times", 0)
    wanted = tuple(Compared(f"wanted-{number}") for number in range(500))
    meant = (*(Compared(f"meant-{number}") for number in range(500)), wanted[7])
    found = Authenticated(UserInfo(username="jane"), meant)

    answer = accepted(found, wanted)

    assert shared(meant, wanted) == answer.audiences == (wanted[7],)
    assert Compared.times < len(wanted) + len(meant)


@pytest.mark.parametrize(
    "where",
    [
        {"headers": {"cookie": f"token={ADMIN}; Authorization=Bearer {ADMIN}"}},
        {"headers": {"x-auth-token": ADMIN, "x-api-key": ADMIN, "proxy-authorization": ADMIN}},
        {"headers": {"authorization": f"Basic {base64.b64encode(ADMIN.encode()).decode()}"}},
        {"headers": {"authorization": ADMIN}},
        {"repeated": [("authorization", f"Bearer {ADMIN}")]},
        {"target": f"{SELF}?access_token={ADMIN}&token={ADMIN}"},
        {"headers": {"sec-websocket-protocol": f"base64url.bearer.authorization.orch.io.{ADMIN}"}},
    ],
)
async def test_a_token_counts_in_the_authorization_header_only(
    where: dict[str, Any], server: Api
) -> None:
    """Not in a query, a cookie, another header or a second one: those end up in logs."""
    given = {"target": SELF, **where}
    answer = await server.call("POST", given.pop("target"), {}, token=None, **given)

    assert answer.status == 401


# --- used to find something out -------------------------------------------------------------------


async def test_reviewing_tokens_needs_permission(server: Api) -> None:
    """A caller without the right learns nothing, in the same words for whatever token."""
    await server.account("robot")
    good = await server.token("robot")
    answers = [
        await server.call("POST", TOKEN_REVIEWS, {"spec": {"token": token}}, token=caller)
        for token in (good, ADMIN, "wrong", "")
        for caller in (BOB, good)
    ]

    assert {answer.status for answer in answers} == {403}
    assert len({answer.text for answer in answers}) == 2  # one for each caller


@pytest.mark.parametrize(
    ("kind", "plural", "where"),
    [("Secret", "secrets", SECRETS), ("Pod", "pods", PODS), ("Node", "nodes", "/api/v1/nodes")],
)
async def test_a_bound_object_that_may_not_be_seen_is_as_if_absent(
    kind: str, plural: str, where: str, server: Api
) -> None:
    """The right to request tokens does not reveal which Secrets exist."""
    await server.account("robot")
    spec = {"serviceAccountName": "robot", "containers": [{"name": "c", "image": "i"}]}
    body: dict[str, Any] = {"metadata": {"name": "there"}}
    await server.make(where, body | {"spec": spec} if kind == "Pod" else body)
    await allow(server, "bob", resources=["serviceaccounts/token"], verbs=["create"])

    async def bound(name: str, token: str, **more: str) -> Any:
        reference = {"kind": kind, "apiVersion": "v1", "name": name, **more}
        body = {"spec": {"audiences": [], "boundObjectRef": reference}}
        return await server.call("POST", f"{ACCOUNTS}/robot/token", body, token=token)

    unseen = [await bound("there", BOB), await bound("there", BOB, uid="x")]
    absent = await bound("other", BOB)
    unbound = await server.call(
        "POST", f"{ACCOUNTS}/robot/token", {"spec": {"audiences": []}}, token=BOB
    )

    assert absent.status == 404
    assert f'{plural} \\"other\\" not found' in absent.text
    assert {answer.text for answer in unseen} == {absent.text.replace("other", "there")}
    assert unbound.status == 201
    assert (await bound("there", ADMIN)).status == 201
    if plural != "nodes":
        await allow(server, "bob", resources=[plural], verbs=["get"])
        assert (await bound("there", BOB)).status == 201


async def test_accounts_are_not_found_out_by_asking_for_tokens(server: Api) -> None:
    """Authorised before anything is looked up: what exists and what does not is refused alike."""
    await server.account("there")
    body = {"spec": {"audiences": []}}
    texts = {
        (await server.call("POST", f"{ACCOUNTS}/{name}/token", body, token=ALICE)).text.replace(
            name, "NAME"
        )
        for name in ("there", "other")
    }

    assert len(texts) == 1
    assert '"code":403' in texts.pop()


async def test_a_refused_credential_is_answered_alike_whatever_is_wrong_with_it(
    server: Api, clock: MovingClock
) -> None:
    """Unknown, expired, forged, of a deleted account, for others: one and the same 401."""
    await server.account("robot")
    await server.account("former")
    tokens = [
        "unknown",
        await server.token("former"),
        await server.token("robot", audiences=["elsewhere"]),
        (await server.token("robot"))[:-4] + "AAAA",
        await server.token("robot", expirationSeconds=600),
    ]
    await server.call("DELETE", f"{ACCOUNTS}/former")
    clock.ahead += timedelta(hours=1)
    answers = [await server.call("GET", ACCOUNTS, token=token) for token in tokens]
    answers.append(await server.call("GET", ACCOUNTS, token=None))
    answers.append(await server.call("GET", ACCOUNTS, token=None, peer=Peer("", b"junk")))

    assert {answer.status for answer in answers} == {401}
    assert len({answer.text for answer in answers}) == 1
