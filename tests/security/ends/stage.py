"""A running server for the table of ends, with an issuer of people and jobs, and its clients.

Start with `staged`. `Stage` is an `Api`, so helpers of other tests call the process over TLS. With
several connections for callers, each request is sent over all of them: with workers another process
answers, over etcd another server.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.api.world import ADMIN, Answer, Api
from tests.conformance.exchanges import TOKENS
from tests.e2e.https import Https
from tests.e2e.serving import free_port, running_server
from tests.security.certified import Certified
from tests.security.exchanging import AGREES
from tests.security.signing_in import CLIENT, SignInProvider

ISSUER = "https://orchid.test"
NAMESPACE = "ends"
CORE = f"/api/v1/namespaces/{NAMESPACE}"
RBAC = "/apis/rbac.authorization.orch.io/v1"


class Stage(Api):
    """One or more servers over one store; the administrator speaks to the first."""

    def __init__(
        self, place: Path, ports: list[int], data: Path, provider: SignInProvider, console: int = 0
    ) -> None:
        self.place, self.ports, self.data, self.provider = place, ports, data, provider
        self.console_port = console
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

    def close(self) -> None:
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


def flags(place: Path, provider: SignInProvider) -> dict[str, str]:
    """The settings of every server of a stage."""
    authority = place / "provider.crt"
    authority.write_text(provider.trusted)
    exchange = provider.exchange_configuration(place / "exchange.json")
    return {
        "--token-auth-file": str(TOKENS),
        "--service-account-issuer": ISSUER,
        "--api-audiences": ISSUER,
        "--token-exchange-config": exchange,
        "--oidc-issuer-url": provider.url,
        "--oidc-client-id": CLIENT,
        "--oidc-ca-file": str(authority),
        "--oidc-username-prefix": "oidc:",
    }


@contextmanager
def staged(place: Path, *more: str, connections: int = 1) -> Iterator[Stage]:
    """One server, and a console unless it has workers."""
    with ExitStack() as stack:
        provider = stack.enter_context(SignInProvider())
        console = free_port()
        own = {
            **flags(place, provider),
            "--console-listen": f"127.0.0.1:{console}",
            "--console-url": f"https://127.0.0.1:{console}",
        }
        given = [word for pair in own.items() for word in pair]
        server = stack.enter_context(running_server(place / "data", *given, *more))
        stage = Stage(place, [server.port] * connections, server.data_dir, provider, console)
        stack.callback(stage.close)
        yield stage


async def prepare(stage: Stage) -> None:
    """Everybody may watch ConfigMaps and revocations; one account lets jobs get its tokens."""
    rules = [
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["watch"]},
        {
            "apiGroups": ["identity.orch.io"],
            "resources": ["credentialrevocations"],
            "verbs": ["list", "watch"],
        },
    ]
    await stage.make(f"{RBAC}/clusterroles", {"metadata": {"name": "watcher"}, "rules": rules})
    subject = {"kind": "Group", "name": "system:authenticated", "apiGroup": RBAC.split("/")[2]}
    role = {"kind": "ClusterRole", "name": "watcher", "apiGroup": RBAC.split("/")[2]}
    binding = {"metadata": {"name": "watcher"}, "roleRef": role, "subjects": [subject]}
    await stage.make(f"{RBAC}/clusterrolebindings", binding)
    await stage.account("deployer", NAMESPACE, annotations=AGREES)
