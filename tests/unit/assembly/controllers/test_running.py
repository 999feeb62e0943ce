"""Which controllers the words of --controllers choose, and running all of them."""

import asyncio
from pathlib import Path

import pytest

from orchid.assembly.components import controller_accounts
from orchid.assembly.controllers.running import (
    CONTROLLERS,
    UnknownController,
    chosen,
    run_controllers,
)
from orchid.features.accounts.kinds.service_account import ServiceAccount
from orchid.features.objects.kinds.lease import Lease
from orchid.kernel.settings.errors import BadSettings
from orchid.kernel.wire.naming import ORCH
from tests.api.world import settings
from tests.unit.features.beside import Beside, beside

ALL = frozenset(one.name for one in CONTROLLERS)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("*",), ALL),
        ((), frozenset()),
        (("csrsigning",), {"csrsigning"}),
        (("certificatesigningrequest-signing-controller",), {"csrsigning"}),
        (("*", "-namespace"), ALL - {"namespace"}),
        (("-namespace", "*"), ALL - {"namespace"}),
        (("*", "-garbage-collector-controller"), ALL - {"garbagecollector"}),
        (("-namespace",), frozenset()),
        (("root-ca-cert-publisher",), {"root-ca-certificate-publisher"}),
        (
            (f"{ORCH.component}-apiserver-serving-clustertrustbundle-publisher-controller",),
            {"trust-bundle-publisher"},
        ),
    ],
)
def test_words_choose_controllers(words: tuple[str, ...], expected: frozenset[str]) -> None:
    """By either name; what is excluded stays out whatever the order."""
    assert chosen(words) == expected


def test_misspelt_controller_is_an_error_that_lists_them() -> None:
    """Better no start than a controller that does not run."""
    with pytest.raises(UnknownController, match=r"'crssigning' is no controller; .* csrsigning"):
        chosen(("crssigning",))


def test_every_controller_has_an_account_of_its_own() -> None:
    """No two share rights."""
    accounts = controller_accounts(ORCH)

    assert ALL | {"leader-election", "trust-pages", "acme-server", "console"} == set(accounts)
    assert len(set(accounts.values())) == len(accounts)


async def test_all_controllers_run_and_stop_together(world: Beside) -> None:
    """They begin when elected and give the Lease back at the end."""
    task = asyncio.create_task(run_controllers(ALL, world.server.clients, world.context))
    await world.until_like(ServiceAccount, "default", "default")
    held = await world.until_like(Lease, ORCH.controller_lease, ORCH.system_namespace)
    task.cancel()
    await asyncio.wait([task])

    given_back = await world.admin.get(Lease, ORCH.controller_lease, ORCH.system_namespace)
    assert held.spec.holder_identity == world.context.identity
    assert given_back.spec.holder_identity == ""
    assert len(world.made(*ALL)) == len(ALL) - 1  # there is no receiver of notices


async def test_identity_is_stable_for_the_embedded_store(server_files: Path) -> None:
    """After a crash the same server leads immediately."""
    async with beside(server_files) as one, beside(server_files) as other:
        assert one.context.identity == other.context.identity


async def test_an_unknown_controller_is_refused_in_one_sentence(server_files: Path) -> None:
    """At start, for the person who typed it."""
    with pytest.raises(BadSettings, match="--controllers: 'nonsense' is no controller"):
        async with beside(server_files, controllers=["nonsense"]):
            pass

    assert settings(server_files)
