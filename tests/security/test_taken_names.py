"""Nothing takes the names of what the server is about to create.

Alice may create CertificateAuthorities for a signer of her own. She created one of the name that
the next token key would get: the controller asked for that name, the server wanted the next one,
and no token key was made any more. Or a Secret without a key had the name of that of the nonces.
"""

from pathlib import Path
from typing import Any

import pytest

from orchid.features.authorities.kinds.certificate_authority import CertificateAuthority
from orchid.features.token_keys.kinds.signing_key import SigningKey
from orchid.kernel.engine.cache.objects import stored_form
from orchid.kernel.store.interface import ABSENT, Change
from orchid.kernel.wire.codec.documents import convert
from orchid.kernel.wire.meta import Object
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.struct import replace
from tests.api.test_token_key_rotation import DAY, rotating
from tests.api.world import Api, api
from tests.security.left_behind import put
from tests.unit.features.acme.conftest import prepared
from tests.unit.features.authorities.test_keep_authorities import KEEPER, until_ready
from tests.unit.features.beside import beside

AUTHORITIES = "/apis/identity.orch.io/v1beta1/certificateauthorities"


def authority(name: str, signer: str = "alice.example.com/web") -> dict[str, Any]:
    return {
        "apiVersion": "identity.orch.io/v1beta1",
        "kind": "CertificateAuthority",
        "metadata": {"name": name},
        "spec": {"signerName": signer, "key": {}, "subject": {"commonName": "Alice"}},
    }


@pytest.mark.parametrize("name", ["tokens", "tokens-2", "tokens-3", "tokens-30"])
async def test_no_authority_has_the_name_of_a_token_key(tmp_path: Path, name: str) -> None:
    """Neither of one that exists nor of a later one."""
    async with api(tmp_path / "data") as server:
        answer = await server.call("POST", AUTHORITIES, authority(name))

    assert answer.status == 422
    assert "reserved: keys of this name sign tokens" in answer.text


async def test_no_authority_has_the_name_of_a_key_of_another(tmp_path: Path) -> None:
    """In either order; what cannot collide is created."""
    async with api(tmp_path / "data") as server:
        for name in ("web", "mail-2", "web-1-1"):
            await server.make(AUTHORITIES, authority(name, f"example.com/{name}"))
        later = await server.call("POST", AUTHORITIES, authority("web-2"))
        earlier = await server.call("POST", AUTHORITIES, authority("mail"))

    assert (later.status, earlier.status) == (422, 422)
    assert "keys of the authority web have such names" in later.text
    assert "its keys have such names as the authority mail-2" in earlier.text


async def test_token_keys_are_made_in_spite_of_an_authority_of_their_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store of an earlier version may have such authorities, and keys of theirs."""
    async with rotating(tmp_path, monkeypatch) as here:
        await here.published("tokens-2")
        await stored(here.server, convert(authority("tokens-3"), CertificateAuthority))
        key = {"metadata": {"name": "tokens-4"}, "spec": {"authority": "tokens", "state": "Active"}}
        await stored(here.server, convert(key, SigningKey))
        await here.later(90 * DAY)
        await here.state("tokens-2", "Active")

        await here.published("tokens-3")
        await here.later(90 * DAY)
        await here.state("tokens-3", "Active")
        await here.published("tokens-5")


async def stored(server: Api, new: Object) -> None:
    """Put an object into the store, past admission."""
    cache = server.server.feed.of(type(new))
    new = replace(new, kind=cache.kind.name, api_version=cache.kind.api_version)
    new = new.with_meta(uid=f"uid-of-{new.name}", creation_timestamp=server.server.clock.now())
    change = Change(cache.kind.key("", new.name), stored_form(new), ABSENT)
    await server.server.feed.reach(await server.server.store.commit([change]))


async def test_the_keys_of_an_authority_are_made_in_spite_of_such_names(
    server_files: Path,
) -> None:
    """The next free name is taken."""
    async with beside(server_files) as world:
        made = await world.admin.create(convert(authority("web"), CertificateAuthority))
        await put(world, made.with_meta(name="web-1", uid="other"))
        async with world.running(KEEPER):
            ready = await until_ready(world)

    assert [key.name for key in ready.status.keys] == ["web-2"]


@pytest.mark.parametrize("data", [{}, {"key": ""}, {"key": "c2hvcnQ="}], ids=str)
async def test_a_secret_in_the_place_of_the_key_of_nonces_stops_no_client(
    tmp_path: Path, data: dict[str, str]
) -> None:
    """Mallory may create Secrets in the system namespace, as a user who writes join tokens."""
    async with api(tmp_path / "data") as server:
        world = await prepared(server)
        body = {"metadata": {"name": "acme-nonces"}, "data": data, "immutable": True}
        await server.make(f"/api/v1/namespaces/{ORCH.system_namespace}/secrets", body)

        client = await world.client()

    assert client.kid
