"""The site: which page a path has, what an action leads to, and each error."""

from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from orchid.features.console import text
from orchid.features.console.api import Api, Refused, Unreachable
from orchid.features.console.live import Changes
from orchid.features.console.page import (
    ConsolePage,
    Download,
    Retry,
    Shown,
    Succeeded,
    Viewer,
    Visit,
)
from orchid.features.console.site import Site
from orchid.features.console.web.messages import WebResponse
from orchid.kernel.wire.naming import ORCH
from tests.unit.features.console.pages.asked import Server

REVIEWS = f"/apis/{ORCH.authentication}/v1/selfsubjectreviews"


class Renderer:
    """Records what is shown by which template."""

    def __init__(self) -> None:
        self.files = {"a.css": ("text/css", b"x")}
        self.shown: dict[str, Any] = {}
        self.template = ""

    def render(self, template: str, **values: Any) -> bytes:
        self.template, self.shown = template, values
        return b"page"


async def read(visit: Visit) -> Any:
    if raised := visit.query.get("raise"):
        raise Unreachable("down") if raised == "0" else Refused(int(raised), "said no")
    return {"names": dict(visit.names)}


async def act(visit: Visit) -> Any:
    word = visit.form["do"]
    if word.isdigit():
        raise Refused(int(word), "said no")
    return {
        "go": Succeeded("/next", "well done"),
        "go on": Succeeded("/next?a=1", "done"),
        "quietly": Succeeded("/next"),
        "retry": Retry("typed wrongly", 400, {"more": 1}),
        "show": Shown({"more": 2}),
    }[word]


async def fetch(visit: Visit) -> WebResponse:
    return WebResponse(200, visit.names["name"].encode())


PAGES = (
    ConsolePage("/", "home.html", read, section="home", live=("a", "b"), every=9),
    ConsolePage("/things/{name}", "thing.html", read, act=act),
    ConsolePage("/things/new", "new.html", read),
    Download("/things/{name}/file", fetch),
)


def viewer(expiry: datetime | None = None) -> Viewer:
    server: Any = Server()
    server.on("POST", REVIEWS, {"status": {"userInfo": {"username": "ann"}}}, 201)
    return Viewer(Api(server, ORCH), Changes(), "https://s", expiry=lambda: expiry)


async def asked(path: str, query: Any = None, form: Any = None, **of: Any) -> Any:
    renderer: Any = Renderer()
    request: Any = SimpleNamespace(
        method="GET" if form is None else "POST", path=path, query=query or {}, form=form or {}
    )
    answer = await Site(renderer, PAGES).respond(request, "/console", viewer(**of))
    return SimpleNamespace(
        answer=answer,
        status=answer.status,
        template=renderer.template,
        shown=renderer.shown,
        headers=dict(answer.headers),
    )


@pytest.mark.parametrize(
    ("path", "template", "names"),
    [
        ("/", "home.html", {}),
        ("/things/a", "thing.html", {"name": "a"}),
        ("/things/a%2Fb/", "thing.html", {"name": "a/b"}),
        ("/things/new", "thing.html", {"name": "new"}),
    ],
)
async def test_a_path_has_one_page(path: str, template: str, names: Any) -> None:
    """The first that matches; a segment of a path is one value."""
    found = await asked(path)

    assert (found.status, found.template, found.shown["names"]) == (200, template, names)
    assert found.shown["user"] == {"username": "ann"}


@pytest.mark.parametrize(
    "path", ["/things", "/things//x", "/things/a/b", "/other/a", "/things/a/b/c"]
)
async def test_any_other_path_has_none(path: str) -> None:
    found = await asked(path)

    assert (found.status, found.template) == (404, "error.html")
    assert found.shown["title"] == "Page not found"


async def test_a_download_is_not_rendered() -> None:
    found = await asked("/things/a/file")

    assert (found.answer.body, found.template) == (b"a", "")


async def test_a_page_has_its_frame() -> None:
    home = (await asked("/", {"q": "1"})).shown
    thing = (await asked("/things/a")).shown

    assert (home["live"], home["every"], home["section"], home["query"]) == (
        "a,b",
        9,
        "home",
        {"q": "1"},
    )
    assert (thing["live"], thing["every"], thing["problem"], thing["form"]) == ("", "", "", {})
    assert (home["base"], home["server"], home["is_local"]) == ("/console", "https://s", True)
    assert home["link"]("x") == "/console/x"


@pytest.mark.parametrize(("left", "soon"), [(None, False), (299, True), (310, False), (-5, True)])
async def test_the_end_of_a_session_is_announced(left: int | None, soon: bool) -> None:
    end = None if left is None else text.now() + timedelta(seconds=left)

    shown = (await asked("/", expiry=end)).shown

    assert shown["ends_soon"] is soon
    assert shown["ends"] == (end.isoformat() if end else "")


@pytest.mark.parametrize(
    ("word", "location"),
    [
        ("go", "/next?done=well+done"),
        ("go on", "/next?a=1&done=done"),
        ("quietly", "/next"),
    ],
)
async def test_an_action_that_succeeds_leads_on(word: str, location: str) -> None:
    found = await asked("/things/a", form={"do": word})

    assert found.status == 303
    assert found.headers["Location"] == location


@pytest.mark.parametrize(
    ("word", "status", "values"),
    [
        ("retry", 400, {"problem": "typed wrongly", "more": 1}),
        ("show", 200, {"problem": "", "more": 2}),
        ("403", 403, {"problem": "said no"}),
        ("409", 409, {"problem": "said no"}),
    ],
)
async def test_an_action_that_does_not_shows_its_page_again(
    word: str, status: int, values: Any
) -> None:
    """With what was typed."""
    found = await asked("/things/a", form={"do": word})

    assert (found.status, found.template) == (status, "thing.html")
    assert {key: found.shown[key] for key in values} == values
    assert found.shown["form"] == {"do": word}
    assert found.shown["names"] == {"name": "a"}


async def test_a_page_without_a_form_takes_none() -> None:
    found = await asked("/", form={"do": "go"})

    assert (found.status, found.template) == (405, "error.html")
    assert found.shown["message"] == "This page has no form."


@pytest.mark.parametrize(
    ("raised", "status", "title", "again"),
    [
        ("400", 400, "Invalid request", False),
        ("401", 401, "The server does not accept your credential", True),
        ("403", 403, "You may not do that", False),
        ("404", 404, "Page not found", False),
        ("405", 405, "Something failed", False),
        ("409", 409, "It changed since you looked", False),
        ("422", 422, "The server refuses that", False),
        ("429", 429, "The server is busy", True),
        ("500", 502, "The server cannot be reached", True),
        ("0", 502, "The server cannot be reached", True),
    ],
)
async def test_each_error_has_a_title(raised: str, status: int, title: str, again: bool) -> None:
    """A form that may succeed later can be sent again."""
    found = await asked("/things/a", {"raise": raised}, {"do": "show"})

    assert (found.status, found.shown["title"], found.shown["status"]) == (status, title, status)
    assert found.shown["is_refused"] is (status == 401)
    target = {"target": f"/console/things/a?raise={raised}", "fields": {"do": "show"}}
    assert found.shown["again"] == (target if again else None)
    assert found.shown["message"] == ("down" if raised == "0" else "said no")
    assert (await asked("/things/a", {"raise": raised})).shown["again"] is None


async def test_changes_are_followed_by_their_name() -> None:
    assert (await asked("/live", {"of": "secrets"})).status == 404
    assert (await asked("/live")).answer.media == "text/plain"


def test_a_file_is_kept_by_browsers() -> None:
    renderer: Any = Renderer()
    site = Site(renderer, PAGES)

    answer = site.static("a.css")
    assert (answer.status, answer.body, answer.media) == (200, b"x", "text/css")
    assert "immutable" in dict(answer.headers)["Cache-Control"]
    assert site.static("b.css").status == 404
