"""The web servers of docs/ci.md, with its lines: a token that ends is refused by the next request.

Apache with two modules, each with a certificate and with a token, and nginx with njs.
"""

import http.client
import os
import re
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import jwt
import pytest

from tests.e2e.exchange_stage import ADMIN, POLICIES, VAULT, ExchangeStage, exchange_stage
from tests.e2e.issuing import CLIENT, Requester, new_request
from tests.e2e.serving import free_port
from tests.e2e.test_agent import until
from tests.system_packages import MISSING, require_program

PAGE = Path(__file__).resolve().parents[2] / "docs" / "ci.md"
FILE = re.compile(
    r"`([\w-]+\.(?:conf|js))`[^\n]*:\n\n```(?:apache|nginx|javascript)\n(.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
APACHE, NGINX = Path("/usr/lib/apache2/modules"), Path("/usr/lib/nginx/modules")
MODULES = ("mpm_event", "authn_core", "authz_core", "authz_user", "auth_openidc", "oauth2")
SITES = ("openidc.conf", "openidc-token.conf", "oauth2.conf", "oauth2-token.conf")
UPSTREAM = "http://127.0.0.1:8081"


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ExchangeStage]:
    """A server, and the credentials of a web server with the right on one audience."""
    for module in ("mod_auth_openidc.so", "mod_oauth2.so"):
        if not (APACHE / module).exists():
            pytest.skip(f"{MISSING}{module}")
    if not (NGINX / "ngx_http_js_module.so").exists():
        pytest.skip(f"{MISSING}ngx_http_js_module.so")
    with exchange_stage(tmp_path_factory.mktemp("web")) as made:
        made.written("token", made.account("web", "frontend"))
        subject = {"kind": "User", "name": "web-1", "apiGroup": "rbac.authorization.orch.io"}
        account = {"kind": "ServiceAccount", "namespace": "web", "name": "frontend"}
        made.may_introspect("introspect-vault", VAULT, subject, account)
        operator = Requester(made.server.port, token=ADMIN)
        request = new_request(made.place / "web.key", "/CN=web-1")
        operator.ask("web-1", CLIENT, request, ["client auth", "digital signature"])
        operator.approve("web-1")
        (made.place / "web.crt").write_bytes(operator.certificate("web-1"))
        made.written("ca.crt", made.authority.read_text())
        yield made


@pytest.fixture(scope="module")
def sites(stage: ExchangeStage) -> Iterator[dict[str, int]]:
    """The port of each web server, by the name of its file in the page."""
    files = {name: filled(content, stage) for name, content in FILE.findall(PAGE.read_text())}
    with ExitStack() as running:
        ports = running.enter_context(apache(stage.place, {name: files[name] for name in SITES}))
        stage.written("introspection.js", files["introspection.js"])
        served = running.enter_context(nginx(stage.place, files["introspection.conf"]))
        yield {**ports, "introspection.conf": served}


def filled(content: str, stage: ExchangeStage) -> str:
    """A file of the page, for this server."""
    own = content.replace("orchid.example:6443", f"localhost:{stage.server.port}")
    own = own.replace("/etc/orchid", str(stage.place))
    own = own.replace("TOKEN-OF-THE-WEB-SERVER", (stage.place / "token").read_text())
    # The module knows only the CAs of the system, and a test does not change those.
    return own.replace("introspect.auth=", "introspect.ssl_verify=false&introspect.auth=")


@contextmanager
def apache(place: Path, files: dict[str, str]) -> Iterator[dict[str, int]]:
    """An Apache with a virtual host for each file."""
    home = place / "apache"
    (home / "www").mkdir(parents=True)
    (home / "www" / "page").write_text("hello")
    ports = {name: free_port() for name in files}
    lines = [f'ServerRoot "{home}"', "ServerName localhost", 'PidFile "pid"', 'ErrorLog "log"']
    lines += [f"LoadModule {name}_module {APACHE}/mod_{name}.so" for name in MODULES]
    lines += ['DocumentRoot "www"', "StartServers 1", "ThreadLimit 4", "ThreadsPerChild 4"]
    lines += ["MaxRequestWorkers 4"]
    for name, content in files.items():
        lines += [f"Listen 127.0.0.1:{ports[name]}", f"<VirtualHost 127.0.0.1:{ports[name]}>"]
        lines += [content, "</VirtualHost>"]
    configuration = home / "apache.conf"
    configuration.write_text("\n".join(lines))
    command = [require_program("apache2"), "-f", configuration, "-DFOREGROUND"]
    with running(command, home / "log", *ports.values()):
        yield ports


@contextmanager
def nginx(place: Path, content: str) -> Iterator[int]:
    """An nginx with this file, and the page that it protects."""
    home, port, upstream = place / "nginx", free_port(), free_port()
    home.mkdir()
    content = content.replace("127.0.0.1:8080", f"127.0.0.1:{port}")
    content = content.replace(UPSTREAM, f"http://127.0.0.1:{upstream}")
    temporary = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    configuration = home / "nginx.conf"
    configuration.write_text(
        f"""
        load_module {NGINX}/ngx_http_js_module.so;
        {"user root;" if os.geteuid() == 0 else ""}
        daemon off; pid {home}/pid; error_log {home}/log; worker_processes 1;
        events {{}}
        http {{
          access_log off;
          {" ".join(f"{name}_temp_path {home}/{name};" for name in temporary)}
          {content}
          server {{ listen 127.0.0.1:{upstream}; location / {{ return 200 "$http_x_user"; }} }}
        }}
        """
    )
    command = [require_program("nginx"), "-e", home / "log", "-p", home, "-c", configuration]
    with running(command, home / "log", port, upstream):
        yield port


@contextmanager
def running(command: list[str | Path], log: Path, *ports: int) -> Iterator[None]:
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        for port in ports:
            until(lambda port=port: listens(port), f"{command[0]} does not listen")
        yield
    finally:
        process.terminate()
        process.wait(20)
        print(log.read_text() if log.exists() else "no log")  # noqa: T201 - of a failed test


def listens(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def answer(port: int, token: str = "") -> tuple[int, str]:
    """Status and body of the protected page."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        connection.request("GET", "/page", headers=headers)
        found = connection.getresponse()
        return found.status, found.read().decode(errors="replace")
    finally:
        connection.close()


def statuses(sites: dict[str, int], token: str = "") -> dict[str, int]:
    return {name: answer(port, token)[0] for name, port in sites.items()}


def jti_of(token: str) -> str:
    found: str = jwt.decode(token, options={"verify_signature": False})["jti"]
    return found


@pytest.mark.system_package("apache2", "nginx", "openssl")
def test_web_servers_refuse_a_token_as_soon_as_it_ends(
    stage: ExchangeStage, sites: dict[str, int]
) -> None:
    """By its own id, by that of the outside token, or with the policy; each after it was used."""
    accepted, refused = dict.fromkeys(sites, 200), dict.fromkeys(sites, 401)
    github = [stage.issuer.github(aud=stage.url) for _ in range(2)]
    tokens = [stage.exchanged(one) for one in github]
    tokens.append(stage.exchanged(stage.issuer.gitlab(aud=stage.url)))
    other = stage.exchanged(github[0], stage.url)

    assert [statuses(sites, token) for token in tokens] == [accepted] * 3
    assert answer(sites["introspection.conf"], tokens[0])[1] == "system:serviceaccount:ci:deployer"
    assert [statuses(sites, token) for token in ("", "x", other)] == [refused] * 3

    stage.revoke("own", jti=jti_of(tokens[0]))
    own = statuses(sites, tokens[0])
    stage.revoke("outside", jti=jti_of(github[1]), issuer=stage.issuer.url)
    outside = statuses(sites, tokens[1])
    stage.send("DELETE", f"{POLICIES}/gitlab")
    policy = statuses(sites, tokens[2])

    assert [own, outside, policy] == [refused] * 3
