"""The attack: to go on with a credential after its end, on a path that nobody thought of."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.person import Person
from tests.security.ends import derived, page, table
from tests.security.ends.credentials import MAKERS
from tests.security.ends.stage import Stage, prepare, staged
from tests.security.ends.table import CREDENTIALS, ENDED, TOGETHER, Credential, End
from tests.security.ends.uses import Held, Use, opened
from tests.security.test_revocations import revoked

PAGE = Path(__file__).parents[2] / "docs" / "revocation.md"
CONNECTED = (table.WATCH, table.LIVE)  # they end with the server
CELLS = [(one, end) for one in CREDENTIALS for end in one.ends if end not in TOGETHER]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with staged(tmp_path_factory.mktemp("ends")) as made:
        asyncio.run(prepare(made))
        yield made


def is_ended(credential: Credential, end: End, path: table.Path) -> bool:
    return credential.ends[end] == ENDED and (end, path) not in credential.spared


async def used(stage: Stage, credential: Credential, held: Held) -> dict[table.Path, Use]:
    """Use a credential on every path."""
    uses = {path: opened(stage, held, path) for path in credential.paths}
    for path, use in uses.items():
        assert await use.works(), f"{credential.name}, {path.name}: refused before the end"
    return uses


async def judge(credential: Credential, end: End, uses: dict[table.Path, Use]) -> None:
    """Use it again on every path, after the end."""
    for path, use in uses.items():
        what = f"{credential.name}, {path.name}"
        if is_ended(credential, end, path):
            assert await use.is_over(), f"{what}: goes on"
        else:
            assert await use.works(), f"{what}: has ended"


@pytest.mark.parametrize(
    ("credential", "end"), CELLS, ids=[f"{one.name}, {end.name}" for one, end in CELLS]
)
async def test_a_credential_has_ended_on_every_path(
    stage: Stage, credential: Credential, end: End
) -> None:
    """Obtain it, use it on every path, end it, and use it again."""
    held = await MAKERS[credential.name](stage)
    uses = await used(stage, credential, held)
    try:
        await held.ends[end]()

        await judge(credential, end, uses)
    finally:
        for use in uses.values():
            use.close()


async def test_the_revocation_of_a_token_key_ends_every_token_that_it_signed(
    tmp_path: Path,
) -> None:
    """On every path; other credentials go on."""
    with staged(tmp_path) as stage:
        await prepare(stage)
        made = [(one, await MAKERS[one.name](stage)) for one in CREDENTIALS]
        uses = [(one, await used(stage, one, held)) for one, held in made]

        await revoked(stage, "stolen", key={"name": await token_key(stage)})

        for one, each in uses:
            if table.KEY in one.ends:
                await judge(one, table.KEY, each)
            else:
                assert await each[one.paths[0]].works(), f"{one.name}: has ended"


async def token_key(stage: Stage) -> str:
    """The name of the key that signs tokens."""
    keys = (await stage.call("GET", "/apis/identity.orch.io/v1beta1/signingkeys")).json["items"]
    [name] = [
        key["metadata"]["name"]
        for key in keys
        if not key["spec"].get("authority") and key["spec"]["state"] == "Active"
    ]
    return str(name)


async def test_an_end_outlasts_the_restore_of_an_earlier_backup(tmp_path: Path) -> None:
    """The revocations are made again before the server is ready; no session is restored."""
    with staged(tmp_path) as stage:
        await prepare(stage)
        made = [(one, await MAKERS[one.name](stage)) for one in CREDENTIALS]
        uses = [(one, await used(stage, one, held)) for one, held in made]
        copy = tmp_path / "copy.db"
        person = Person(tmp_path, stage.process.kubeconfig)
        person.types("backup", str(copy), "--data-dir", str(stage.data))
        for one, held in made:
            await held.ends[revocation_of(one)]()

        with stage.restored(copy):
            for one, each in uses:
                stays = {path: use for path, use in each.items() if path not in CONNECTED}
                await judge(one, revocation_of(one), stays)


def revocation_of(one: Credential) -> End:
    """The first revocation of the table that ends a credential."""
    return next(end for end, how in one.ends.items() if end.target and how == ENDED)


def test_everything_that_is_a_credential_or_ends_one_is_in_the_table() -> None:
    """A new authenticator, stored kind or target of a revocation needs a row, or a reason."""
    assert list(derived.problems()) == []
    assert {one.name for one in CREDENTIALS} == MAKERS.keys()


def test_the_page_shows_the_table() -> None:
    text = PAGE.read_text()
    found = text.partition(page.BEGIN)[2].partition(page.STOP)[0].strip()

    assert found == page.shown()
