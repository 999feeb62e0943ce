"""A running server for the table of ends, with an issuer of people and jobs, and its clients.

Start with `staged`. `Stage` is an `Api`, so helpers of other tests call the process over TLS. With
several connections for callers, each request is sent over all of them: with workers another process
answers, over etcd another server.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from orchid.kernel.credentials.authorities.authority import Authority
from orchid.kernel.wire.naming import ORCH
from tests.api.callers import authority, front_proxy_settings
from tests.api.clusters import cluster
from tests.api.world import ADMIN, Answer, Api
from tests.conformance.exchanges import TOKENS
from tests.e2e.https import Https
from tests.e2e.person import Person
from tests.e2e.serving import Server, free_port, running_server
from tests.security.certified import Certified
from tests.security.exchanging import AGREES
from tests.security.signing_in import CLIENT, SignInProvider
from tests.security.test_revoked_users import allowed
from tests.unit.features.acme.acme_client import BASE
from tests.unit.features.acme.conftest import AUTHORITIES

ISSUER = "https://orchid.test"
NAMESPACE = "ends"
CORE = f"/api/v1/namespaces/{NAMESPACE}"
RBAC = "/apis/rbac.authorization.orch.io/v1"


KNOWN: Final = "hook-"  # how a token begins that the webhook knows; the rest is its user


class Provider(SignInProvider):
    """It also answers the reviews of a webhook."""

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        pages: Any = super()._handler()

        class Reviews(pages):  # type: ignore[misc]  # a class that a function has made
            def do_POST(self) -> None:  # noqa: N802 -- the name of http.server
                if not self.path.startswith("/review"):
                    super().do_POST()
                    return
                review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                found = json.dumps({**review, "status": reviewed(review["spec"])}).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(found)))
                self.end_headers()
                self.wfile.write(found)

        return Reviews


def reviewed(spec: dict[str, Any]) -> dict[str, Any]:
    """The status of a review; the id of a token is the token."""
    token = spec["token"]
    if not token.startswith(KNOWN):
        return {"authenticated": False}
    extra = {ORCH.credential_id: [f"JTI={token}"]}
    user = {"username": token.removeprefix(KNOWN), "extra": extra}
    return {"authenticated": True, "user": user, "audiences": spec["audiences"]}


class Stage(Api):
    """One or more servers over one store; the administrator speaks to the first."""

    def __init__(
        self, place: Path, ports: list[int], data: Path, provider: Provider, console: int = 0
    ) -> None:
        self.place, self.ports, self.data, self.provider = place, ports, data, provider
        self.console_port = console
        self.proxies: Authority
        self.process: Server
        self.words: tuple[str, ...]  # the flags of the server
        self._callers: dict[Path | None, list[Https]] = {}
        self._opened: list[Https] = []
        self._admin = self.connection(ports[0])
        self._count = 0

    def name(self) -> str:
        """One that nothing had before."""
        self._count += 1
        return f"n{self._count}"

    async def call(
        self,
        method: str,
        target: str,
        body: Any = None,
        *,
        token: str | None = ADMIN,
        headers: Mapping[str, str] | None = None,
        **_: Any,
    ) -> Answer:
        return sent(self._admin, method, target, body, token=token, headers=headers)

    async def make(self, target: str, body: Any, **more: Any) -> Any:
        answer = await self.call("POST", target, body, **more)
        assert answer.status == 201, answer.text
        return answer.json

    def callers(self, identity: Path | None = None) -> list[Https]:
        """A connection to each server, with a client certificate or without."""
        if identity not in self._callers:
            self._callers[identity] = [self.connection(port, identity) for port in self.ports]
        return self._callers[identity]

    def connection(self, port: int, identity: Path | None = None) -> Https:
        """A connection that is closed with the stage."""
        self._opened.append(Https(port, identity))
        return self._opened[-1]

    def identity(self, name: str, certified: Certified) -> Path:
        """A file with a client certificate and its key."""
        file = self.place / f"{name}.pem"
        file.touch(mode=0o600)
        file.write_bytes(certified.chain + certified.key)
        return file

    @contextmanager
    def restored(self, copy: Path) -> Iterator[None]:
        """Stop the server, restore a backup, and start it again on the same port."""
        self.process.stop()
        self.close()
        person = Person(self.place, self.process.kubeconfig)
        person.types("restore", str(copy), "--data-dir", str(self.data))
        with running_server(self.data, *self.words, port=self.ports[0]):
            yield
            self.close()

    def close(self) -> None:
        """Close every connection; those that are used again are opened again."""
        for connection in self._opened:
            connection.close()


def sent(
    https: Https,
    method: str,
    target: str,
    body: Any = None,
    *,
    token: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> Answer:
    named = {name.title(): value for name, value in (headers or {}).items()}
    reply = https.send(method, target, body, token=token or "", headers=named)
    return Answer(reply.status, list(reply.headers.items()), reply.body)


class Browser:
    """A browser session of the console."""

    def __init__(self, stage: Stage, user: str) -> None:
        self._console = stage.connection(stage.console_port)
        self._host = f"127.0.0.1:{stage.console_port}"
        self._cookie = ""
        location = urlsplit(self._get("/").header("location") or "")
        stage.provider.nonce = parse_qs(location.query)["nonce"][0]
        state = parse_qs(location.query)["state"][0]
        assert self._get(f"/callback?code={user}&state={state}").status == 200

    def is_signed_in(self) -> bool:
        return self._get("/").status == 200

    def headers(self, mode: str = "navigate") -> dict[str, str]:
        return {"Host": self._host, "Sec-Fetch-Mode": mode, "Cookie": self._cookie}

    def _get(self, target: str) -> Answer:
        """A page; its first cookie is that of the session, or of the sign-in."""
        connection = self._console._connection
        connection.request("GET", target, headers=self.headers())
        reply = connection.getresponse()
        found = Answer(reply.status, reply.getheaders(), reply.read())
        if cookie := found.header("set-cookie"):
            self._cookie = cookie.partition(";")[0]
        return found


def flags(place: Path, provider: Provider, proxies: Authority) -> dict[str, str]:
    """The settings of every server of a stage."""
    trusted = place / "provider.crt"
    trusted.write_text(provider.trusted)
    exchange = provider.exchange_configuration(place / "exchange.json")
    webhook = place / "webhook.json"
    cluster = {"server": f"{provider.url}/review", "certificate-authority": str(trusted)}
    context = {"cluster": "c", "user": "u"}
    webhook.write_text(
        json.dumps(
            {
                "clusters": [{"name": "c", "cluster": cluster}],
                "users": [{"name": "u", "user": {}}],
                "contexts": [{"name": "x", "context": context}],
                "current-context": "x",
            }
        )
    )
    proxy = {
        f"--{name.replace('_', '-')}": ",".join(value) if isinstance(value, list) else str(value)
        for name, value in front_proxy_settings(place, proxies).items()
    }
    return {
        **proxy,
        "--acme-url": BASE,
        "--authentication-token-webhook-config-file": str(webhook),
        "--token-auth-file": str(TOKENS),
        "--service-account-issuer": ISSUER,
        "--api-audiences": ISSUER,
        "--token-exchange-config": exchange,
        "--oidc-issuer-url": provider.url,
        "--oidc-client-id": CLIENT,
        "--oidc-ca-file": str(trusted),
        "--oidc-username-prefix": "oidc:",
    }


@contextmanager
def staged(place: Path, *more: str, connections: int = 1) -> Iterator[Stage]:
    """One server, and a console unless it has workers."""
    with ExitStack() as stack:
        provider = stack.enter_context(Provider())
        proxies = authority()
        given = flags(place, provider, proxies)
        console = 0 if more else free_port()
        if console:
            given |= {
                "--console-listen": f"127.0.0.1:{console}",
                "--console-url": f"https://127.0.0.1:{console}",
            }
        words = [word for pair in given.items() for word in pair]
        server = stack.enter_context(running_server(place / "data", *words, *more))
        stage = Stage(place, [server.port] * connections, server.data_dir, provider, console)
        stage.proxies, stage.process, stage.words = proxies, server, (*words, *more)
        stack.callback(stage.close)
        yield stage


RULES: Final = (
    allowed("configmaps", "watch"),
    allowed("credentialrevocations", "list", "watch", group="identity.orch.io"),
    allowed("certificatesigningrequests", "create", group=ORCH.certificates),
)


async def prepare(stage: Stage) -> None:
    """Everybody may watch ConfigMaps and revocations, and send certificate requests. One account
    lets jobs get its tokens; there are authorities for ACME and for SVIDs, and a cluster.
    """
    meta = {"metadata": {"name": "user"}}
    await stage.make(f"{RBAC}/clusterroles", {**meta, "rules": RULES})
    renewing = f"system:{ORCH.certificates}:certificatesigningrequests:selfnodeclient"
    for role, group in (
        ("user", "system:authenticated"),
        (renewing, "system:nodes"),
        ("acme-requester", "system:serviceaccounts"),
    ):
        subject = {"kind": "Group", "name": group, "apiGroup": ORCH.rbac}
        reference = {"kind": "ClusterRole", "name": role, "apiGroup": ORCH.rbac}
        body = {"metadata": {"name": f"{role}-of-all"}, "roleRef": reference, "subjects": [subject]}
        await stage.make(f"{RBAC}/clusterrolebindings", body)
    await stage.account("deployer", NAMESPACE, annotations=AGREES)
    for name, more in (("servers", {"acme": {}}), ("mesh", {"trustDomain": "example.org"})):
        spec = {"signerName": f"example.com/{name}", "key": {"algorithm": "ECDSA-P256"}, **more}
        spec["subject"] = {"commonName": name}
        await stage.make(AUTHORITIES, {"metadata": {"name": name}, "spec": spec})
    await cluster(stage)
