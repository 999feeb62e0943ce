"""The sign-in of `orchid console`, without a server behind it."""

import re
from typing import Any

import pytest

from orchid.features.console.rendering import Renderer
from orchid.features.console.sign_in.local import LINK_SECONDS, SESSION_SECONDS, LinkSignIn
from orchid.features.console.web.messages import FORM, WebRequest, WebResponse

HOST = "127.0.0.1:8123"
ORIGIN = f"http://{HOST}"
RENDERER = Renderer()


class OnePage:
    """A site that answers everything."""

    async def respond(self, request: WebRequest, base: str, viewer: Any) -> WebResponse:
        return WebResponse(200, f"{request.method} {request.path}".encode())

    def static(self, path: str) -> WebResponse:
        return WebResponse(200, b"static")


class World:
    """A sign-in, the time, and a browser."""

    def __init__(self) -> None:
        self.now = 1000.0
        site: Any = OnePage()
        viewer: Any = None
        self.sign_in = LinkSignIn(site, RENDERER, viewer, lambda: self.now)
        self.sign_in.listens_at(8123)

    async def send(self, method: str, path: str, **headers: str) -> WebResponse:
        sent = {"host": HOST, **{name.replace("_", "-"): text for name, text in headers.items()}}
        return await self.sign_in.respond(WebRequest(method, path, {}, sent))

    def link(self) -> str:
        return self.sign_in.new_link().removeprefix(ORIGIN)

    async def open(self) -> tuple[str, str]:
        """The path of the pages, and the cookie."""
        opened = await self.send("GET", self.link())
        found = re.search(r'url=(/[^"]+)/"', opened.body.decode())
        assert found is not None
        return found[1], dict(opened.headers)["Set-Cookie"].partition(";")[0]


@pytest.fixture
def world() -> World:
    return World()


async def test_a_link_opens_the_console_once(world: World) -> None:
    """It is in the history of the browser and in the scroll-back of the terminal."""
    link = world.link()

    first, second = await world.send("GET", link), await world.send("GET", link)

    assert (first.status, second.status) == (200, 403)
    assert "Set-Cookie" not in dict(second.headers)


async def test_a_link_ends_after_a_minute(world: World) -> None:
    """Nobody finds a link that still works."""
    link = world.link()
    world.now += LINK_SECONDS + 1

    assert (await world.send("GET", link)).status == 403


@pytest.mark.parametrize(("method", "header"), [("HEAD", ""), ("GET", "prefetch;prerender")])
async def test_a_preview_does_not_use_a_link_up(world: World, method: str, header: str) -> None:
    """A browser that looks ahead is not the user."""
    link = world.link()
    more = {"sec_purpose": header} if header else {}

    preview = await world.send(method, link, **more)

    assert "Set-Cookie" not in dict(preview.headers)
    assert (await world.send("GET", link)).status == 200


async def test_the_cookie_is_only_sent_below_the_path(world: World) -> None:
    """Other ports of this host are the same site: the path keeps the cookie from them."""
    opened = await world.send("GET", world.link())

    cookie = dict(opened.headers)["Set-Cookie"]
    path = re.search(r"Path=(/[^;]+/);", cookie)
    assert path is not None
    assert len(path[1]) >= 18  # 96 bits
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie


@pytest.mark.parametrize(
    "host", ["evil.example:8123", "127.0.0.1:8124", "127.0.0.1", "", "localhost:8123.evil.example"]
)
async def test_another_host_is_refused(world: World, host: str) -> None:
    """DNS rebinding: a name of an attacker that resolves to this machine."""
    base, cookie = await world.open()

    answer = await world.send("GET", f"{base}/", host=host, cookie=cookie)

    assert answer.status == 421


@pytest.mark.parametrize(
    "sent",
    [
        "{}; orchid=evil",
        "{}; orchid=",
        'settings={{"a": "b"}}; {}',
        'x=a"b c; {}',
        "=;;{};",
        "Orchid=evil; {}",
        "\xa0orchid=evil; {}",
        "\x85orchid=evil;\t{}",
    ],
)
async def test_cookies_of_other_ports_do_not_hide_the_session(world: World, sent: str) -> None:
    """A browser sends them all, those with the longest path first."""
    base, cookie = await world.open()

    assert (await world.send("GET", f"{base}/", cookie=sent.format(cookie))).status == 200


async def test_nothing_is_served_elsewhere(world: World) -> None:
    """A program that scans ports learns no path."""
    base, cookie = await world.open()
    other = "y" if base.endswith("x") else "x"

    for path in ("/", "/requests", f"{base[:-1]}{other}/", base, f"{base}x/", "/é/", "//"):
        answer = await world.send("GET", path, cookie=cookie)
        assert answer.status == 404, path


@pytest.mark.parametrize("cookie", ["", "orchid=", "orchid=guessed", "orchid=é", "=;;;", "a=b"])
async def test_pages_need_the_session(world: World, cookie: str) -> None:
    """The path alone opens nothing."""
    base, _ = await world.open()

    assert (await world.send("GET", f"{base}/", cookie=cookie)).status == 403


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"origin": ORIGIN},
        {"sec_fetch_site": "same-origin"},
        {"origin": "http://127.0.0.1:9000", "sec_fetch_site": "same-site"},
        {"origin": "null", "sec_fetch_site": "same-origin"},
        {"origin": "https://evil.example", "sec_fetch_site": "cross-site"},
        {"origin": ORIGIN, "sec_fetch_site": "same-site"},
        {"origin": ORIGIN, "sec_fetch_site": "none"},
    ],
)
async def test_a_form_of_another_page_is_refused(world: World, headers: dict[str, str]) -> None:
    """Also with the cookie: SameSite does not separate the ports of a host."""
    base, cookie = await world.open()

    answer = await world.send("POST", f"{base}/x", cookie=cookie, content_type=FORM, **headers)

    assert answer.status == 403
    assert b"nothing was changed" in answer.body


async def test_our_own_form_is_accepted(world: World) -> None:
    """By either name of this machine."""
    base, cookie = await world.open()
    own: Any = {"cookie": cookie, "sec_fetch_site": "same-origin"}

    for host in (HOST, "localhost:8123"):
        answer = await world.send("POST", f"{base}/x", host=host, origin=f"http://{host}", **own)
        assert answer.body == b"POST /x"


async def test_signing_out_ends_the_session(world: World) -> None:
    """A kept cookie opens nothing afterwards."""
    base, cookie = await world.open()
    own = {"origin": ORIGIN, "sec_fetch_site": "same-origin"}

    out = await world.send("POST", f"{base}/out", cookie=cookie, **own)

    assert "Max-Age=0" in dict(out.headers)["Set-Cookie"]
    assert (await world.send("GET", f"{base}/", cookie=cookie)).status == 403


async def test_a_session_ends_after_twelve_hours(world: World) -> None:
    """A console that was forgotten."""
    base, cookie = await world.open()
    assert (await world.send("GET", f"{base}/", cookie=cookie)).status == 200
    world.now += SESSION_SECONDS + 1

    assert (await world.send("GET", f"{base}/", cookie=cookie)).status == 403


async def test_every_response_has_the_security_headers(world: World) -> None:
    """Pages, refusals and files."""
    base, cookie = await world.open()

    for path in ("/", f"{base}/", "/in/none", "/static/style.css"):
        headers = dict((await world.send("GET", path, cookie=cookie)).headers)
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "require-trusted-types-for 'script'; trusted-types 'none'" in policy
        assert "unsafe" not in policy
        assert headers["Referrer-Policy"] == "same-origin"
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cross-Origin-Opener-Policy"] == "same-origin"
        assert headers["Cache-Control"] == "no-store"
