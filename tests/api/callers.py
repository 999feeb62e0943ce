"""Every kind of caller, each with what it presents: a token, a certificate, headers, or nothing.

`introduce` makes what they need: an account and its tokens, the view role for the viewer, a front
proxy's authority. A `Caller` is then one way of asking the server for something.
"""

import datetime
import ssl
from dataclasses import dataclass, field
from pathlib import Path

from orchid.features.token_keys.followed_keys import FollowedKeys
from orchid.kernel.credentials.authorities.authority import Authority
from orchid.kernel.credentials.token_claims import AccountClaims, Claims, Reference
from orchid.kernel.http.messages import Peer
from tests.api.world import ADMIN, BOB, ISSUER, NODE, Api

VIEWER = "viewer-token-0008"
END = "-----END CERTIFICATE-----\n"
BINDINGS = "/apis/rbac.authorization.orch.io/v1/clusterrolebindings"


@dataclass(frozen=True)
class Caller:
    """The credentials of one caller."""

    token: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    certificate: bytes | None = None

    @property
    def peer(self) -> Peer:
        return Peer("127.0.0.1:1", self.certificate)


def authority() -> Authority:
    return Authority.create("front-proxy-ca", now=datetime.datetime.now(datetime.UTC))


def certificate(issuer: Authority, name: str) -> bytes:
    """A client certificate in DER, as TLS would hand it on."""
    now, hour = datetime.datetime.now(datetime.UTC), datetime.timedelta(hours=1)
    chain = issuer.issue_client(name, lifetime=hour, now=now).chain.decode()
    return ssl.PEM_cert_to_DER_cert(chain.partition("-----END CERTIFICATE-----")[0] + END)


def front_proxy_settings(directory: Path, authority: Authority) -> dict[str, object]:
    """Settings of a server that believes one front proxy."""
    file = directory / "front-proxy.crt"
    file.write_bytes(authority.certificate_pem)
    return {
        "requestheader_client_ca_file": str(file),
        "requestheader_allowed_names": ["front-proxy"],
        "requestheader_username_headers": ["X-Remote-User"],
        "requestheader_group_headers": ["X-Remote-Group"],
    }


async def introduce(server: Api, proxies: Authority) -> dict[str, Caller]:
    """All the callers, by name."""
    subject = {"kind": "User", "name": "viewer", "apiGroup": "rbac.authorization.orch.io"}
    role = {"kind": "ClusterRole", "name": "view", "apiGroup": "rbac.authorization.orch.io"}
    body = {"metadata": {"name": "viewers"}, "roleRef": role, "subjects": [subject]}
    await server.make(BINDINGS, body)
    account = await server.account("robot")
    await server.account("former")
    former = await server.token("former")
    await server.call("DELETE", "/api/v1/namespaces/default/serviceaccounts/former")
    headers = {"x-remote-user": "bob"}
    return {
        "none": Caller(),
        "bad token": Caller("no-such-token"),
        "expired token": Caller(expired_token(server, account["metadata"]["uid"])),
        "deleted account": Caller(former),
        "wrong audience": Caller(await server.token("robot", audiences=["elsewhere"])),
        "proxy without certificate": Caller(headers=headers),
        "proxy of another name": Caller(headers=headers, certificate=certificate(proxies, "other")),
        "plain user": Caller(BOB),
        "account": Caller(await server.token("robot")),
        "proxy": Caller(headers=headers, certificate=certificate(proxies, "front-proxy")),
        "viewer": Caller(VIEWER),
        "node": Caller(NODE),
        "admin": Caller(ADMIN),
    }


def expired_token(server: Api, uid: str) -> str:
    """A token of ours, rightly signed, whose time is over."""
    past = int((datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=2)).timestamp())
    claims = Claims(
        aud=(ISSUER,),
        exp=past + 3600,
        iat=past,
        iss=ISSUER,
        jti="j",
        nbf=past,
        sub="system:serviceaccount:default:robot",
    )
    account = AccountClaims(namespace="default", serviceaccount=Reference("robot", uid))
    return server.server.context.port(FollowedKeys).keys.signer().sign(claims, account).reveal()
