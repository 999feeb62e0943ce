"""How each credential of the table is obtained, and how it ends in each of its ways."""

import base64
from collections.abc import Awaitable, Callable
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from orchid.wire.naming import ORCH
from tests.security.certified import Certified
from tests.security.ends.stage import CORE, ISSUER, NAMESPACE, Browser, Stage
from tests.security.ends.table import (
    ACCOUNT,
    BOUND,
    DELETED,
    ITSELF,
    ORIGIN,
    PERSON,
    POLICY,
    SESSION,
    SIGNER,
    USER,
)
from tests.security.ends.uses import Action, Held, until
from tests.security.exchanging import POLICIES, exchange, make_policy
from tests.security.signing_in import SESSIONS
from tests.security.test_revocations import REQUESTS, jti_of, revoked
from tests.unit.credentials import samples

POD = {"containers": [{"name": "c", "image": "i"}]}
Maker = Callable[[Stage], Awaitable[Held]]


def revoking(stage: Stage, **spec: Any) -> Action:
    return lambda: revoked(stage, stage.name(), **spec)


def deleting(stage: Stage, path: str) -> Action:
    async def delete() -> None:
        answer = await stage.call("DELETE", path)
        assert answer.status in (200, 202), answer.text

    return delete


def of_account(stage: Stage, name: str, token: str) -> dict[str, Action]:
    """The ends of a token of an account."""
    account = {"namespace": NAMESPACE, "name": name}
    return {
        ITSELF: revoking(stage, token={"jti": jti_of(token), **account}),
        ACCOUNT: revoking(stage, account=account),
        DELETED: deleting(stage, f"{CORE}/serviceaccounts/{name}"),
    }


async def account_token(stage: Stage) -> Held:
    name = stage.name()
    await stage.account(name, NAMESPACE)
    token = await stage.token(name, NAMESPACE)
    return Held(of_account(stage, name, token), token, ISSUER)


def bound(kind: str, **body: Any) -> Maker:
    """A token that is bound to an object."""

    async def make(stage: Stage) -> Held:
        name, place = stage.name(), f"{CORE}/{kind.lower()}s"
        await stage.account(name, NAMESPACE)
        filled = {key: {**value, "serviceAccountName": name} for key, value in body.items()}
        await stage.make(place, {"metadata": {"name": name}, **filled})
        reference = {"kind": kind, "apiVersion": "v1", "name": name}
        token = await stage.token(name, NAMESPACE, boundObjectRef=reference)
        ends = of_account(stage, name, token)
        ends[BOUND] = deleting(stage, f"{place}/{name}?gracePeriodSeconds=0")
        return Held(ends, token, ISSUER)

    return make


async def exchanged_token(stage: Stage) -> Held:
    """A token of an account that a person or a job got for a token of their issuer."""
    name, job = stage.name(), stage.name()
    await stage.account(name, NAMESPACE, annotations={"identity.orch.io/token-exchange": "outside"})
    await make_policy(
        stage,
        stage.provider,
        name,
        NAMESPACE,
        claims={"sub": job},
        account=name,
        audiences=[ISSUER],
    )
    outside = stage.provider.token(sub=job)
    answer = await exchange(stage, outside, account=f"{NAMESPACE}/{name}")
    assert answer.status == 200, answer.text
    token = answer.json["access_token"]
    return Held(
        {
            **of_account(stage, name, token),
            ORIGIN: revoking(stage, token={"jti": jti_of(outside), "issuer": stage.provider.url}),
            PERSON: revoking(stage, user={"username": f"oidc:{job}"}),
            POLICY: deleting(stage, f"{POLICIES.format(NAMESPACE)}/{name}"),
        },
        token,
        ISSUER,
    )


async def client_certificate(stage: Stage) -> Held:
    """A certificate of a user, requested, approved and signed."""
    name = stage.name()
    certified = await signed(stage, name, name)
    return Held(
        {
            ITSELF: revoking(stage, certificate={"requestName": name}),
            USER: revoking(stage, user={"username": name}),
            SIGNER: revoking(stage, authority={"signerName": ORCH.client_signer}),
        },
        identity=stage.identity(name, certified),
    )


async def signed(stage: Stage, name: str, user: str) -> Certified:
    """A client certificate, by a request that the administrator approves."""
    key = ec.generate_private_key(ec.SECP256R1())
    spec = {
        "request": base64.b64encode(samples.request(user, key=key)).decode(),
        "signerName": ORCH.client_signer,
        "usages": ["client auth"],
    }
    made = await stage.make(REQUESTS, {"metadata": {"name": name}, "spec": spec})
    condition = {"type": "Approved", "status": "True", "reason": "Test"}
    made["status"] = {"conditions": [condition]}
    answer = await stage.call("PUT", f"{REQUESTS}/{name}/approval", made)
    assert answer.status == 200, answer.text
    found = b""

    async def is_issued() -> bool:
        nonlocal found
        status = (await stage.call("GET", f"{REQUESTS}/{name}")).json["status"]
        found = base64.b64decode(status.get("certificate", ""))
        return bool(found)

    assert await until(is_issued)
    return Certified(
        found,
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    )


async def console_session(stage: Stage) -> Held:
    user = stage.name()
    browser = Browser(stage, user)
    found = (await stage.call("GET", SESSIONS)).json["items"]
    [name] = [one["metadata"]["name"] for one in found if one["spec"]["username"] == f"oidc:{user}"]
    return Held(
        {
            SESSION: deleting(stage, f"{SESSIONS}/{name}"),
            USER: revoking(stage, user={"username": f"oidc:{user}"}),
        },
        browser=browser,
    )


MAKERS: dict[str, Maker] = {
    "token of an account": account_token,
    "token bound to a Pod": bound("Pod", spec=POD),
    "token bound to a Secret": bound("Secret"),
    "exchanged token": exchanged_token,
    "client certificate of a user": client_certificate,
    "console session": console_session,
}
