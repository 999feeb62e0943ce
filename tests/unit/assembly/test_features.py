"""A feature is one folder and one line: one more is served, and one less is not missed.

Both are tried with a copy of the source, in a process of their own.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

GREETINGS = '''
"""Greetings, which are there for a test.

Read first feature.py
"""

from orchid.kernel.base.metrics import Counter
from orchid.kernel.context import ServerPart
from orchid.kernel.engine.kind import Kind, Scope
from orchid.kernel.engine.strategy import Strategy
from orchid.kernel.feature import Feature
from orchid.kernel.runtime.declaration import ControllerDeclaration
from orchid.kernel.server.pages.site import raw_json
from orchid.kernel.wire.default_roles import DefaultRole, urls
from orchid.kernel.wire.meta import Object
from orchid.kernel.wire.policy_rules import READ, rule


class Greeting(Object):
    """A greeting."""


def declare(naming):
    return Kind(
        type=Greeting, group=naming.identity, version="v1alpha1", plural="greetings",
        scope=Scope.CLUSTER, rules=Strategy(),
    )


class Greeter:
    """Counts the greetings that it gave."""

    def __init__(self, context):
        self.counter = Counter("orchid_greetings_total", "Greetings.")
        self._home = context.naming.system_namespace

    def __call__(self, exchange):
        self.counter.count()
        return raw_json(exchange, b'{"hello":"%b"}' % self._home.encode())


class GreetingController:
    async def run(self):
        pass


FEATURE = Feature(
    name="greetings",
    kinds=(declare,),
    controllers=(
        ControllerDeclaration(
            name="greet",
            long_name="greet-controller",
            account="greeter",
            rights=lambda naming: (rule(READ, naming.identity, ("greetings",)),),
            build=lambda client, context, events: GreetingController(),
        ),
    ),
    roles=lambda naming: (DefaultRole("greeted", (urls("/greetings/*"),)),),
    provides=(ServerPart(Greeter, Greeter),),
    pages=lambda context: {"/greetings/": context.port(Greeter)},
    metrics=lambda context: (context.port(Greeter).counter,),
    documentation="concepts.md",
)
'''

GREETED = """
import asyncio, sys
from pathlib import Path
from orchid.assembly.controllers.running import build
from tests.api.world import api

GREETINGS = "/apis/identity.orch.io/v1alpha1/greetings"
ROLES = "/apis/rbac.authorization.orch.io/v1/clusterroles"

async def main():
    async with api(Path(sys.argv[1]) / "data") as server:
        made = await server.call("POST", GREETINGS, {"metadata": {"name": "hello"}})
        assert made.status == 201, made.text
        listed = await server.call("GET", GREETINGS)
        assert [each["metadata"]["name"] for each in listed.json["items"]] == ["hello"]
        page = await server.call("GET", "/greetings/you")
        assert page.json == {"hello": "orch-system"}, page.text
        metrics = await server.call("GET", "/metrics")
        assert "orchid_greetings_total 1" in metrics.text
        role = await server.call("GET", f"{ROLES}/greeted")
        assert role.json["rules"][0]["nonResourceURLs"] == ["/greetings/*"], role.text
        account = await server.call("GET", f"{ROLES}/system:controller:greeter")
        assert account.json["rules"][0]["resources"] == ["greetings"], account.text
        clients = server.server.clients
        (controller,) = build(frozenset({"greet"}), clients, None, None)
        await controller.run()
        print("greeted")

asyncio.run(main())
"""

WITHOUT_NOTICES = """
import asyncio, sys
from pathlib import Path
from orchid.assembly.features import CONTROLLERS, FEATURES
from orchid.commands.diagnosis.all_checks import all_checks
from tests.api.world import api
from tests.unit.features.beside import beside

ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"

async def main():
    assert "notices" not in {feature.name for feature in FEATURES}
    async with beside(Path(sys.argv[1]) / "data") as world:
        server = world.server
        running = world.made(*(each.name for each in CONTROLLERS))
        assert len(running) > 20, running
    async with api(Path(sys.argv[1]) / "data") as server:
        made = await server.call("POST", ACCOUNTS, {"metadata": {"name": "robot"}})
        assert made.status == 201, made.text
        token = await server.token("robot")
        who = await server.call(
            "POST", "/apis/authentication.orch.io/v1/selfsubjectreviews", {}, token=token
        )
        assert who.json["status"]["userInfo"]["username"].endswith("default:robot"), who.text
        assert (await server.call("GET", "/readyz")).status == 200
        for path in ("/openapi/v3", "/apis", "/openid/v1/jwks"):
            assert (await server.call("GET", path)).status == 200, path
        metrics = (await server.call("GET", "/metrics")).text
        assert "orchid_ledger" in metrics
        assert "orchid_notices" not in metrics
        assert "notices" not in all_checks()
        print("served")

asyncio.run(main())
"""


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the source, which a test changes."""
    return shutil.copytree(ROOT / "src" / "orchid", tmp_path / "source" / "orchid")


def run(program: str, copy: Path, directory: Path) -> str:
    """The output of a program that imports the copy."""
    done = subprocess.run(
        [sys.executable, "-c", program, str(directory)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{copy.parent}:{ROOT}"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def edit(file: Path, *changes: tuple[str, str]) -> None:
    text = file.read_text()
    for before, after in changes:
        assert before in text, before
        text = text.replace(before, after)
    file.write_text(text)


def test_one_more_feature_is_a_folder_and_a_line(copy: Path, tmp_path: Path) -> None:
    """Its kind, page, metric, role and controller are served; nothing else knows of them."""
    folder = copy / "features" / "greetings"
    folder.mkdir()
    (folder / "__init__.py").write_text('"""Greetings."""\n')
    (folder / "feature.py").write_text(GREETINGS.lstrip())
    edit(
        copy / "assembly" / "features.py",
        (
            "from orchid.kernel.feature ",
            "from orchid.features.greetings import feature as greetings\n"
            "from orchid.kernel.feature ",
        ),
        ("    console.FEATURE,\n", "    console.FEATURE,\n    greetings.FEATURE,\n"),
    )

    assert run(GREETED, copy, tmp_path) == "greeted"


def test_a_server_without_notices_misses_nothing(copy: Path, tmp_path: Path) -> None:
    """Without the folder and its lines, all other controllers are built, and requests answered."""
    shutil.rmtree(copy / "features" / "notices")
    edit(
        copy / "assembly" / "features.py",
        ("from orchid.features.notices import feature as notices\n", ""),
        ("    notices.FEATURE,\n", ""),
    )
    edit(
        copy / "assembly" / "settings.py",
        ("from orchid.features.notices.settings import ReceiverSettings\n", ""),
        ("    ReceiverSettings,\n", ""),
    )

    assert run(WITHOUT_NOTICES, copy, tmp_path) == "served"
