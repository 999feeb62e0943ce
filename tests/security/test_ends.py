"""The attack: to go on with a credential after its end, on a path that nobody thought of."""

import asyncio
from collections.abc import Iterator

import pytest

from tests.security.ends.credentials import MAKERS
from tests.security.ends.stage import Stage, prepare, staged
from tests.security.ends.table import CREDENTIALS, ENDED, Credential
from tests.security.ends.uses import opened

CELLS = [(one, end) for one in CREDENTIALS for end in one.ends]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with staged(tmp_path_factory.mktemp("ends")) as made:
        asyncio.run(prepare(made))
        yield made


async def try_cell(stage: Stage, credential: Credential, end: str) -> None:
    """Obtain the credential, use it on every path, end it, and use it again."""
    held = await MAKERS[credential.name](stage)
    uses = {path: opened(stage, held, path) for path in credential.paths}
    try:
        for path, use in uses.items():
            assert await use.works(), f"{path.name}: refused before the end"
        await held.ends[end]()
        for path, use in uses.items():
            if credential.ends[end] == ENDED:
                assert await use.is_over(), f"{path.name}: goes on"
            else:
                assert await use.works(), f"{path.name}: has ended"
    finally:
        for use in uses.values():
            use.close()


@pytest.mark.parametrize(
    ("credential", "end"), CELLS, ids=[f"{one.name}, {end}" for one, end in CELLS]
)
async def test_a_credential_has_ended_on_every_path(
    stage: Stage, credential: Credential, end: str
) -> None:
    await try_cell(stage, credential, end)
