"""`orchid serve --console-listen` in a real browser, with a provider of others and certificates."""

import base64
import gzip
import hashlib
import json
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.conformance.exchanges import TOKENS
from tests.e2e.browsing import identity_of, running_browser
from tests.e2e.https import Https
from tests.e2e.openid_provider import CLIENT, running_provider
from tests.e2e.serving import Server, free_port, running_server
from tests.e2e.test_console import ADMIN, IDENTITY, REQUESTS, World, other_site, request_body

pytestmark = pytest.mark.system_package("chromium", "node", "npm")
RBAC = "rbac.authorization.orch.io"
ASKING = {
    "apiGroups": ["certificates.orch.io"],
    "resources": ["certificatesigningrequests"],
    "verbs": ["create"],
}
SESSIONS = f"{IDENTITY}/consolesessions"
AUDIT_POLICY = "apiVersion: audit.orch.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n"
SECRET = "a secret of the client: + / ?"


class Served(World):
    """A server with its console, a provider and a browser."""

    url: str
    audit: Path

    def __init__(self, server: Server, browser: Any, url: str, audit: Path) -> None:
        self.server, self.browser, self.url, self.audit = server, browser, url, audit

    def window(self) -> Any:
        context = self.browser.new_context(ignore_https_errors=True)
        context.set_default_timeout(20_000)
        return context.new_page()

    def sign_in(self, page: Any, user: str, path: str = "/") -> None:
        """Open a page, and sign in at the provider."""
        page.goto(f"{self.url}{path}")
        page.locator("input[name=login]").fill(user)
        page.locator("input[name=password]").fill("any")
        page.get_by_role("button").first.click()
        page.get_by_role("button", name="Continue").click()
        page.wait_for_url(f"{self.url}{path}")

    def bind(self, role: str, user: str) -> None:
        reference = {"kind": "ClusterRole", "name": role, "apiGroup": RBAC}
        subject = {"kind": "User", "name": user, "apiGroup": RBAC}
        body = {"metadata": {"name": role}, "roleRef": reference, "subjects": [subject]}
        self.call("POST", f"/apis/{RBAC}/v1/clusterrolebindings", body)

    def audited(self, subresource: str) -> list[dict[str, Any]]:
        """The complete requests for a subresource, from the audit log."""
        events = [json.loads(line) for line in self.audit.read_text().splitlines()]
        return [
            one
            for one in events
            if one.get("objectRef", {}).get("subresource") == subresource
            and one["stage"] == "ResponseComplete"
        ]

    def sessions(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.call("GET", SESSIONS)["items"]
        return found


def raw(served: Served, method: str, path: str, **headers: str) -> tuple[int, dict[str, str]]:
    """Status and headers of a request that no browser sent; Cookie is a header."""
    host = {"Host": served.url.removeprefix("https://")}
    named = {"Cookie" if name == "cookie" else name: text for name, text in headers.items()}
    with Https(int(served.url.rpartition(":")[2])) as https:
        reply = https.send(method, path, headers={**host, **named})
    return reply.status, {name.lower(): text for name, text in reply.headers.items()}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    place = tmp_path_factory.mktemp("served-console")
    port = free_port()
    url = f"https://127.0.0.1:{port}"
    secret = place / "client-secret"
    secret.write_text(SECRET)
    secret.chmod(0o600)
    audit, policy = place / "audit.log", place / "audit-policy.yaml"
    policy.write_text(AUDIT_POLICY)
    with ExitStack() as running:
        provider = running.enter_context(
            running_provider(place, f"{url}/callback", client_secret=SECRET)
        )
        flags = {
            "--token-auth-file": TOKENS,
            "--oidc-issuer-url": provider.url,
            "--oidc-client-id": CLIENT,
            "--oidc-ca-file": provider.authority,
            "--oidc-username-prefix": "oidc:",
            "--oidc-groups-claim": "groups",
            "--console-listen": f"127.0.0.1:{port}",
            "--console-url": url,
            "--console-oidc-client-secret-file": secret,
            "--audit-log-path": audit,
            "--audit-policy-file": policy,
        }
        given = [str(word) for pair in flags.items() for word in pair]
        server = running.enter_context(running_server(place / "data", *given))
        browser = running.enter_context(running_browser())
        made = Served(server, browser, url, audit)
        for role in ("certificate-approver", "certificate-inventory-viewer"):
            made.bind(role, "oidc:alice")
        yield made


def test_a_user_signs_in_and_approves_with_their_own_rights(served: Served) -> None:
    """The audit log has the user, the address of the browser and the agent of the console."""
    served.request("served")
    page = served.window()
    served.sign_in(page, "alice", "/requests/served")

    page.get_by_role("radio", name="Approve").check()
    page.get_by_role("textbox", name="Message").fill("known host")
    page.get_by_role("button", name="Record the decision").click()
    expect(page.locator("#state")).to_have_text("Approved")

    assert served.types("served") == ["Approved"]
    written = [one for one in served.audited("approval") if one["verb"] == "update"]
    assert {one["user"]["username"] for one in written} == {"oidc:alice"}
    assert {one["sourceIPs"][0] for one in written} == {"127.0.0.1"}
    assert all(one["userAgent"].startswith("orchid-console/") for one in written)
    page.context.close()


def test_nobody_approves_their_own_request(served: Served) -> None:
    """Run 2: the page says so before the click, and the server refuses it."""
    role = {"metadata": {"name": "ask"}, "rules": [ASKING]}
    served.call("POST", f"/apis/{RBAC}/v1/clusterroles", role)
    served.bind("ask", "oidc:alice")
    with Https(served.server.port) as https:
        body, headers = request_body("mine", "own.example.com"), {"Impersonate-User": "oidc:alice"}
        made = https.send("POST", REQUESTS, body, token=ADMIN, headers=headers)
    assert made.status == 201, made.body
    page = served.window()
    served.sign_in(page, "alice", "/requests/mine")

    expect(page.get_by_text("Another person must approve it")).to_be_visible()
    page.get_by_role("radio", name="Approve").check()
    page.get_by_role("button", name="Record the decision").click()
    expect(page.get_by_role("alert")).to_be_visible()

    assert served.types("mine") == []
    refused = [one for one in served.audited("approval") if one["responseStatus"]["code"] == 403]
    assert [one["user"]["username"] for one in refused] == ["oidc:alice"]
    assert refused[0]["objectRef"]["name"] == "mine"
    assert refused[0]["sourceIPs"] == ["127.0.0.1"]
    assert refused[0]["userAgent"].startswith("orchid-console/")
    page.context.close()


def test_a_user_without_rights_sees_the_missing_right(served: Served) -> None:
    """Nothing of the server's own rights is used."""
    page = served.window()
    served.sign_in(page, "mallory")

    expect(page.get_by_text("orchid grant").first).to_be_visible()
    page.goto(f"{served.url}/accounts")
    expect(page.get_by_text("cannot list resource").first).to_be_visible()
    page.context.close()


def test_a_deleted_session_is_signed_out_and_a_stored_one_opens_nothing(served: Served) -> None:
    """The database has the hash of the cookie and sealed tokens: neither is a credential."""
    page = served.window()
    served.sign_in(page, "alice")
    cookie = next(one for one in page.context.cookies() if one["name"] == "__Host-orchid")
    hashed = hashlib.sha256(cookie["value"].encode()).hexdigest()
    stored = next(one for one in served.sessions() if one["metadata"]["name"] == hashed)
    name, sealed = stored["metadata"]["name"], stored["spec"]["sealed"]
    store = served.server.data_dir / "orchid.db"
    with sqlite3.connect(f"file:{store}?mode=ro", uri=True) as database:
        everything = b"".join(
            value if isinstance(value, bytes) else str(value).encode()
            for (table,) in database.execute("SELECT name FROM sqlite_master WHERE type='table'")
            for row in database.execute(f"SELECT * FROM {table}")  # noqa: S608 -- our own names
            for value in row
        )

    assert (cookie["httpOnly"], cookie["secure"], cookie["sameSite"]) == (True, True, "Strict")
    assert everything.count(sealed.encode()) > 0
    assert everything.count(cookie["value"].encode()) == 0
    for guess in (name, sealed, sealed[:43]):
        assert raw(served, "GET", "/you", cookie=f"__Host-orchid={guess}")[0] == 303
    assert raw(served, "GET", "/you", cookie=f"__Host-orchid={cookie['value']}")[0] == 200
    served.call("DELETE", f"{SESSIONS}/{name}")
    page.reload()
    page.wait_for_url("**/interaction/**")  # at the provider
    page.context.close()


def test_signing_out_ends_every_window_and_the_kept_cookie(served: Served) -> None:
    page = served.window()
    served.sign_in(page, "bob", "/you")
    value = next(one["value"] for one in page.context.cookies() if one["name"] == "__Host-orchid")
    live = page.evaluate("async () => (await fetch('/live?of=certificatesigningrequests')).status")
    page.get_by_role("button", name="Sign out", exact=True).click()
    expect(page.get_by_role("heading", name="Signed out")).to_be_visible()

    assert live == 403  # bob may not watch requests
    assert raw(served, "GET", "/you", cookie=f"__Host-orchid={value}")[0] == 303
    assert [one for one in served.sessions() if one["spec"]["username"] == "oidc:bob"] == []
    page.context.close()


def test_typed_text_survives_the_end_of_a_session(served: Served) -> None:
    """The form is sent again after the user has signed in in another tab."""
    served.request("typed")
    page = served.window()
    served.sign_in(page, "alice", "/requests/typed")
    page.get_by_role("radio", name="Deny").check()
    page.get_by_role("textbox", name="Message").fill("a long explanation")
    for one in served.sessions():
        served.call("DELETE", f"{SESSIONS}/{one['metadata']['name']}")

    page.get_by_role("button", name="Record the decision").click()
    expect(page.get_by_text("a long explanation")).to_be_visible()
    assert served.types("typed") == []
    with page.context.expect_page() as opened:
        page.get_by_role("link", name="Sign in").click()
    opened.value.get_by_role("button", name="Continue").click()
    expect(opened.value.get_by_role("heading", name="Overview")).to_be_visible()
    page.get_by_role("button", name="Send it again").click()

    expect(page.locator("#state")).to_have_text("Denied")
    assert served.types("typed") == ["Denied"]
    page.context.close()


def test_a_link_of_another_site_opens_its_page(served: Served) -> None:
    """The strict cookie is not sent with the first request; the page continues by itself."""
    served.request("mailed")
    page = served.window()
    served.sign_in(page, "alice")
    with other_site(f'<a href="{served.url}/requests/mailed">look</a>', "localhost") as url:
        page.goto(url)
        page.get_by_role("link", name="look").click()
        expect(page.get_by_role("heading", name="mailed")).to_be_visible()
    page.context.close()


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("GET", "/", {"Host": "evil.example"}, 421),
        ("POST", "/out", {}, 403),
        ("POST", "/out", {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}, 403),
        ("GET", "//evil.example/", {}, 400),
        ("GET", "/callback?code=x&state=y", {}, 400),
        ("GET", "/callback?code=x&state=y", {"Cookie": "__Host-orchid-login=a.Lw=="}, 403),
        ("GET", "/requests", {"Sec-Fetch-Mode": "cors"}, 401),
        ("GET", "/live?of=certificatesigningrequests", {"Sec-Fetch-Mode": "cors"}, 401),
        ("DELETE", "/", {}, 400),
        ("GET", "/requests", {"Authorization": f"Bearer {ADMIN}"}, 303),
    ],
)
def test_hostile_requests_are_refused(
    served: Served, method: str, path: str, headers: dict[str, str], status: int
) -> None:
    """A rebound host, forged forms, other sites as target, a callback that nobody began."""
    found, sent = raw(served, method, path, **headers)

    assert found == status
    assert "__Host-orchid=" not in sent.get("set-cookie", "")


def test_the_page_after_signing_in_is_never_of_another_site(served: Served) -> None:
    """The page comes from the path of the first request alone."""
    for path in ("/%5Cevil.example/", "/requests?next=//evil.example", "/%2F%2Fevil.example"):
        status, headers = raw(served, "GET", path)
        assert status == 303
        login = headers["set-cookie"].partition("=")[2].partition(";")[0]
        target = base64.urlsafe_b64decode(login.partition(".")[2]).decode()
        assert target.startswith("/")
        assert target[1] not in "/\\"
        assert "next=" not in headers["location"]


def test_client_certificates_are_the_other_way_to_sign_in(tmp_path: Path) -> None:
    """Without a certificate nobody is admitted, not even as an anonymous user."""
    port = free_port()
    url = f"https://127.0.0.1:{port}"
    flags = ("--console-listen", f"127.0.0.1:{port}", "--console-url", url)
    with running_server(tmp_path / "data", *flags, "--console-login", "certificate") as server:
        with Https(port, identity_of(server.kubeconfig, tmp_path)) as browser:
            known = browser.send("GET", "/you")
            other = browser.send("GET", "/you", headers={"Host": "evil.example"})
            forged = browser.send("POST", "/requests/x", headers={"Origin": "https://evil.example"})
            packed = browser.send("GET", "/you", headers={"Accept-Encoding": "br, gzip"})
            asked = {"Accept-Encoding": "gzip", "Sec-Fetch-Site": "same-site"}
            foreign = browser.send("GET", "/you", headers=asked)
            broken = browser.send("GET", "/you?a=1&a=2")
        with Https(port) as stranger:
            unknown = stranger.send("GET", "/you", token=ADMIN)

    assert known.status == 200
    assert b"system:masters" in known.body
    assert known.headers["Strict-Transport-Security"].startswith("max-age=")
    assert packed.headers["Content-Encoding"] == "gzip"
    assert b"system:masters" in gzip.decompress(packed.body)
    assert "Content-Encoding" not in foreign.headers
    assert (other.status, forged.status, unknown.status) == (421, 403, 401)
    assert broken.status == 400
    for reply in (known, other, forged, unknown, packed, broken):
        assert "default-src 'none'" in reply.headers["Content-Security-Policy"]
        assert reply.headers["Cache-Control"] == "no-store"
    assert b"no certificate" in unknown.body
