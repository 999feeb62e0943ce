"""`orchid console` in a real browser: decisions, revocations, hostile pages, accessibility.

With ORCHID_SCREENSHOTS=DIR every page is checked in light and dark at three widths, and pictures
are written there.
"""

import base64
import http.server
import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from cryptography import x509
from playwright.sync_api import Error, expect

from orchid.features.console.site import NAVIGATION
from tests.conformance.exchanges import TOKENS
from tests.e2e.browsing import Console, opened, running_browser, running_console
from tests.e2e.https import Https
from tests.e2e.serving import Server, running_server
from tests.unit.kernel.credentials import samples

pytestmark = pytest.mark.system_package("chromium")

REQUESTS = "/apis/certificates.orch.io/v1/certificatesigningrequests"
IDENTITY = "/apis/identity.orch.io/v1alpha1"
ADMIN = "admin-token-0001"
EVIL = "<img src=x onerror=\"document.title='stolen'\">"
WIDTHS = (360, 768, 1280)
expect.set_options(timeout=20_000)
SHOTS = os.environ.get("ORCHID_SCREENSHOTS", "")


def request_body(name: str, host: str, subject: str = "") -> dict[str, Any]:
    made = samples.request(subject, (), alternative_names=(x509.DNSName(host),))
    data = base64.b64encode(made).decode()
    spec = {"request": data, "signerName": "example.com/web", "usages": ["server auth"]}
    return {"metadata": {"name": name}, "spec": spec}


class World:
    """A server, a console for its administrator, and a browser."""

    def __init__(self, server: Server, console: Console, browser: Any) -> None:
        self.server, self.console, self.browser = server, console, browser

    def open(self, **options: Any) -> tuple[Any, str]:
        """A new window at the overview, and the URL that all pages are below."""
        context = self.browser.new_context(**options)
        context.set_default_timeout(20_000)
        page = context.new_page()
        return page, opened(page, self.console.another_link())

    def call(self, method: str, target: str, body: Any = None) -> Any:
        with Https(self.server.port) as https:
            reply = https.send(method, target, body, token=ADMIN)
        assert reply.status < 300, reply.body
        return reply.json

    def request(self, name: str, host: str = "shop.example.com", subject: str = "") -> None:
        self.call("POST", REQUESTS, request_body(name, host, subject))

    def types(self, name: str) -> list[str]:
        status = self.call("GET", f"{REQUESTS}/{name}").get("status", {})
        return [one["type"] for one in status.get("conditions", ())]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    data = tmp_path_factory.mktemp("console") / "data"
    with ExitStack() as running:
        tokens = ("--token-auth-file", str(TOKENS))
        server = running.enter_context(running_server(data, *tokens))
        console = running.enter_context(running_console(server.kubeconfig))
        browser = running.enter_context(running_browser())
        made = World(server, console, browser)
        spec = {
            "signerName": "example.com/web",
            "key": {"algorithm": "ECDSA-P256"},
            "subject": {"commonName": "Example web authority"},
        }
        made.call(
            "POST",
            f"{IDENTITY}/certificateauthorities",
            {"metadata": {"name": "web"}, "spec": spec},
        )
        yield made


def test_a_new_request_appears_and_is_approved_and_revoked(world: World) -> None:
    """Nothing is reloaded by hand: the page follows the server."""
    page, base = world.open()
    page.goto(f"{base}/requests")
    world.request("live")
    row = page.get_by_role("link", name="live", exact=True)
    note = page.get_by_role("button", name="Show")
    expect(row.or_(note).first).to_be_visible()
    if note.is_visible():
        note.click()
    row.click()
    expect(page.get_by_role("heading", name="What would be signed")).to_be_visible()

    page.keyboard.press("a")
    page.get_by_role("textbox", name="Message").fill("known host")
    page.get_by_role("button", name="Record the decision").click()
    expect(page.locator("#state")).to_have_text("Issued")
    page.locator("#issued a").click()
    page.get_by_role("link", name="Revoke…").click()
    expect(page.get_by_role("heading", name="This will hit")).to_be_visible()
    page.get_by_role("combobox", name="Reason").select_option("keyCompromise")
    page.get_by_role("button", name="Revoke").dblclick()

    expect(page.locator("#state")).to_have_text("Effective")
    found = world.call("GET", f"{IDENTITY}/credentialrevocations")["items"]
    assert [one["spec"]["reason"] for one in found] == ["keyCompromise"]
    page.context.close()


def test_everything_works_without_script(world: World) -> None:
    """A reload shows each step."""
    world.request("plain")
    page, base = world.open(java_script_enabled=False)
    page.goto(f"{base}/requests?state=Waiting")
    page.get_by_role("link", name="plain", exact=True).click()
    page.get_by_role("radio", name="Deny").check()
    page.get_by_role("textbox", name="Message").fill("not this one")
    page.get_by_role("button", name="Record the decision").click()

    expect(page.locator("#state")).to_have_text("Denied")
    page.get_by_role("link", name="Requests").first.click()
    assert world.types("plain") == ["Denied"]
    page.context.close()


def test_a_request_that_was_replaced_while_the_form_is_open_is_not_approved(world: World) -> None:
    """Run 4: the same name, other names in the request."""
    world.request("swapped")
    page, base = world.open()
    page.goto(f"{base}/requests/swapped")
    page.get_by_role("radio", name="Approve").check()
    world.call("DELETE", f"{REQUESTS}/swapped")
    world.request("swapped", host="admin.example.com")

    page.get_by_role("button", name="Record the decision").click()

    expect(page.get_by_role("alert")).to_contain_text("It changed since you looked")
    expect(page.get_by_text("admin.example.com").first).to_be_visible()
    assert world.types("swapped") == []
    page.context.close()


def test_a_hostile_subject_is_text_and_scripts_of_others_do_not_run(world: World) -> None:
    """Escaped by the template; and without effect if it were not."""
    world.request("hostile", subject=EVIL)
    page, base = world.open()
    page.goto(f"{base}/requests/hostile")

    assert page.get_by_text("onerror").count() >= 2
    assert page.title() == "hostile · Orchid"
    with pytest.raises(Error, match="TrustedHTML"):
        page.evaluate("document.body.innerHTML = '<b>x</b>'")
    page.context.close()


@contextmanager
def other_site(html: str, host: str = "127.0.0.1") -> Iterator[str]:
    """A page on another port of this machine; by another name, it is another site."""

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(html.encode())

        def log_message(self, *_: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://{host}:{server.server_address[1]}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_a_form_and_a_frame_of_another_port_are_refused(world: World) -> None:
    """Also by a page that knows the path and the fields of the form."""
    world.request("forged")
    page, base = world.open()
    page.goto(f"{base}/requests/forged")
    names = ("uid", "version", "sha256")
    fields = {one: page.locator(f"input[name={one}]").get_attribute("value") for one in names}
    inputs = "".join(f'<input name="{name}" value="{value}">' for name, value in fields.items())
    html = (
        f'<form method="post" action="{base}/requests/forged">{inputs}'
        '<input name="decision" value="approve"><button>go</button></form>'
        f'<iframe src="{base}/requests/forged"></iframe>'
    )
    with other_site(html) as url:
        page.goto(url)
        frame = page.frames[1]
        assert "forged" not in frame.title()
        page.get_by_role("button", name="go").click()
        expect(page.get_by_text("nothing was changed")).to_be_visible()

    assert world.types("forged") == []
    page.context.close()


def test_a_link_opens_once_and_signing_out_ends_the_session(world: World) -> None:
    """Also for a second window with the same cookie."""
    link = world.console.another_link()
    context = world.browser.new_context()
    page, second = context.new_page(), context.new_page()
    base = opened(page, link)
    second.goto(f"{base}/you")

    page.goto(link)
    assert "no longer works" in page.content()
    second.get_by_role("button", name="Sign out").click()
    expect(second.get_by_role("heading", name="Signed out")).to_be_visible()
    page.goto(f"{base}/requests")

    assert "This console is closed" in page.content()
    context.close()


def test_seven_tabs_load(world: World) -> None:
    """A browser opens six connections to a host, and streams take four of them at most."""
    page, base = world.open()
    for _ in range(7):
        tab = page.context.new_page()
        tab.goto(f"{base}/requests")
        expect(tab.get_by_role("heading", name="Requests")).to_be_visible()
    page.context.close()


def paths_of(world: World) -> dict[str, str]:
    """Every page, by a name for its picture."""
    found = world.call("GET", f"{IDENTITY}/issuedcertificates")["items"]
    serial = next(one for one in found if one["spec"]["signerName"] == "example.com/web")
    named = serial["metadata"]["name"]
    revocation = world.call("GET", f"{IDENTITY}/credentialrevocations")["items"][0]
    paths = {path or "overview": f"/{path}" for path, _ in NAVIGATION}
    return {
        **paths,
        "you": "/you",
        "request": "/requests/shop",
        "certificate": f"/issued/{named}",
        "revoke": "/revoke?authority=web",
        "revocation": f"/revocations/{revocation['metadata']['name']}",
        "account": "/accounts/default/default",
        "authority": "/authorities/web",
        "policy": "/policies/web-servers",
        "not-found": "/nothing",
    }


@pytest.fixture(scope="module")
def pages(world: World) -> dict[str, str]:
    """The paths of all pages, each with something to show."""
    policy = {
        "signerNames": ["example.com/web"],
        "requesters": {"groups": ["developers"]},
        "allows": {"dnsNames": ["*.example.com"], "usages": ["server auth"]},
    }
    made = {"metadata": {"name": "web-servers"}, "spec": policy}
    world.call("POST", f"{IDENTITY}/approvalpolicies", made)
    world.request("shop")
    return paths_of(world)


LOOKS = list(product(("light", "dark"), WIDTHS))


@pytest.mark.parametrize("look", LOOKS if SHOTS else [None], ids=str)
def test_pages_are_accessible(
    world: World, pages: dict[str, str], look: tuple[str, int] | None
) -> None:
    """axe finds nothing; no page is wider than its window; no script fails.

    In the suite, each page has one of the looks.
    """
    page, base = world.open()
    failures: list[str] = []
    page.on("pageerror", lambda error: failures.append(f"script: {error}"))
    for number, (name, path) in enumerate(pages.items()):
        scheme, width = look or LOOKS[number % len(LOOKS)]
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size({"width": width, "height": 900})
        page.goto(f"{base}{path}")
        where = f"{name}, {scheme}, {width}"
        if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
            failures.append(f"{where}: wider than the window")
        for violation in Axe().run(page).response["violations"]:
            nodes = [node["html"][:200] for node in violation["nodes"]][:2]
            failures.append(f"{where}: {violation['id']}: {nodes}")
        if SHOTS:
            page.screenshot(path=Path(SHOTS) / f"{name}-{scheme}-{width}.png", full_page=True)
    assert failures == []
    page.context.close()
