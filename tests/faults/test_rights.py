"""The check of rights after faults: it finds what it is there to find, and nothing else."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from orchid.features.accounts.authenticators.service_account_token import (
    ServiceAccountTokenAuthenticator,
)
from orchid.features.revocation.revocations import Revocations
from orchid.features.rights.authorizers.rbac import Bindings
from tests.api.world import ADMIN, api
from tests.faults.rights import REMOVALS, Rights
from tests.unit.kernel.http.listening import serving

ROUNDS = 10


async def rights_of_a_server(directory: Path) -> Rights:
    async with api(directory / "data") as one, serving(one.server.chain) as listening:
        rights = Rights([f"http://127.0.0.1:{listening.listener.port}"] * 2, ADMIN)
        await rights.run(asyncio.Event(), ROUNDS)
    return rights


async def test_sound_server_passes(tmp_path: Path) -> None:
    """Every sort of right was there, was taken away, and was gone."""
    rights = await rights_of_a_server(tmp_path)

    assert rights.improper == []
    assert rights.removed == {removal.what: ROUNDS // len(REMOVALS) for removal in REMOVALS}


async def test_binding_that_still_counts_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the caller's own request, and by a review of it."""
    really_put = Bindings.put

    def put(self: Bindings, key: str, binding: Any) -> None:
        if binding is not None:
            really_put(self, key, binding)

    monkeypatch.setattr(Bindings, "put", put)

    rights = await rights_of_a_server(tmp_path)

    reported = [text.split()[:2] for text in rights.improper]
    assert (
        reported.count(["200", "was"]) == reported.count(["a", "review"]) == 4
    )  # two, by two ways


async def test_account_and_bound_object_that_still_count_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if all that is left is that the caller is known."""
    monkeypatch.setattr(ServiceAccountTokenAuthenticator, "_refuse_gone", lambda *_: ())

    rights = await rights_of_a_server(tmp_path)

    asked = [text for text in rights.improper if "was answered" in text]
    reviewed = [text for text in rights.improper if "a review accepts" in text]
    assert {text.partition("its ")[2] for text in asked} == {
        "account was removed",
        "bound object was removed",
    }
    assert len(reviewed) == len(asked)


async def test_revocation_that_does_not_count_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one token, and of all tokens of an account."""
    monkeypatch.setattr(Revocations, "refuse_token", lambda *_given: None)

    rights = await rights_of_a_server(tmp_path)

    reported = [text.rpartition("after its ")[2] for text in rights.improper]
    assert reported.count("token was removed") == reported.count("tokens was removed") == 4
