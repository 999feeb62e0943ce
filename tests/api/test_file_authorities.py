"""CAs of the platform signers that are files: objects show them, and nothing about them changes."""

import json
from pathlib import Path
from typing import Any

from orchid.features.authorities.file_authorities import FileAuthorityObjects
from orchid.kernel.base.clock import SystemClock
from orchid.kernel.credentials.authorities.authority import Authority
from orchid.kernel.credentials.files import write_private
from orchid.kernel.store.memory import MemoryStore
from tests.api.test_signing_keys import HOME, KEYS, MERGE, REVOCATIONS, make, report, step
from tests.api.world import Answer, Api, api


class Kept(MemoryStore):
    """Stays open, as data on a disk does."""

    async def close(self) -> None:
        pass


AUTHORITIES = "/apis/identity.orch.io/v1alpha1/certificateauthorities"


def pair(place: Path, name: str) -> dict[str, str]:
    """The files of a new CA."""
    made = Authority.create(name, now=SystemClock().now())
    certificate, key = place / f"{name}.crt", place / f"{name}.key"
    write_private(certificate, made.certificate_pem)
    write_private(key, made.key_pem().reveal().encode())
    return {"cert_file": str(certificate), "key_file": str(key)}


def flags(word: str, files: dict[str, str]) -> dict[str, str]:
    return {f"cluster_signing_{word}{name}": path for name, path in files.items()}


async def shown(server: Api, what: str = KEYS) -> dict[str, Any]:
    """The objects that show CAs, by name."""
    await server.server.context.port(FileAuthorityObjects).update()
    await server.server.feed.fresh()
    found = (await server.call("GET", what)).json["items"]
    return {
        one["metadata"]["name"]: one
        for one in found
        if what != KEYS or one["spec"].get("authority")
    }


def ready_of(one: Any) -> tuple[str, str]:
    (found,) = (each for each in one["status"]["conditions"] if each["type"] == "Ready")
    return found["status"], found["reason"]


async def test_the_shared_ca_of_files_is_shown(tmp_path: Path) -> None:
    """As authority `cluster`, with the signers that it issues for."""
    async with api(tmp_path / "data", **flags("", pair(tmp_path, "ca"))) as server:
        key = (await shown(server))["cluster-1"]
        authority = (await shown(server, AUTHORITIES))["cluster"]
        naming = server.server.settings.naming

        assert key["status"]["source"] == "File"
        assert key["spec"] == {"authority": "cluster", "state": "Active"}
        assert ready_of(key) == ready_of(authority) == ("True", "File")
        assert authority["spec"]["signerNames"] == list(naming.issuing_signers)
        assert authority["status"]["certificate"] == (tmp_path / "ca.crt").read_text()
        assert [one["name"] for one in authority["status"]["keys"]] == ["cluster-1"]
        assert key["status"]["keyID"] in server.server.context.port(FileAuthorityObjects).key_ids


async def test_signers_with_separate_files_are_shown(tmp_path: Path) -> None:
    """Each is named like its revocation list; that of clients has the signer of Pods, too."""
    given = flags("client_", pair(tmp_path, "clients"))
    given |= flags("node_serving_", pair(tmp_path, "serving"))
    async with api(tmp_path / "data", **given) as server:
        naming = server.server.settings.naming
        client, serving = (
            one.partition("/")[2] for one in (naming.client_signer, naming.node_serving_signer)
        )
        found = await shown(server, AUTHORITIES)
        signers = {name: one["spec"]["signerNames"] for name, one in found.items()}
        keys = sorted(await shown(server))

        assert signers == {
            client: [naming.client_signer, naming.pod_client_signer],
            serving: [naming.node_serving_signer],
        }
        assert keys == sorted((f"{client}-1", f"{serving}-1"))


async def changed(server: Api, target: str, body: Any) -> Answer:
    return await server.call("PATCH", target, json.dumps(body).encode(), headers=MERGE)


async def test_what_shows_a_file_cannot_be_changed(tmp_path: Path) -> None:
    """Nor its status; and no key is added to it, revoked, or deleted while a server has it."""
    async with api(tmp_path / "data", **flags("", pair(tmp_path, "ca"))) as server:
        await shown(server)
        await report(server, server.server.context.port(FileAuthorityObjects).key_ids)
        labels = {"metadata": {"labels": {"a": "b"}}}
        revocation = {
            "metadata": {"name": "lost"},
            "spec": {"key": {"name": "cluster-1"}, "reason": "keyCompromise"},
        }
        successor = {
            "metadata": {"name": "cluster-2"},
            "spec": {"authority": "cluster", "algorithm": "ECDSA-P256"},
        }
        refused = [
            await step(server, "cluster-1", "Verifying"),
            await changed(server, f"{KEYS}/cluster-1", labels),
            await changed(server, f"{KEYS}/cluster-1/status", {"status": {"conditions": []}}),
            await changed(server, f"{AUTHORITIES}/cluster", {"spec": {"rotation": "Manual"}}),
            await changed(server, f"{AUTHORITIES}/cluster", labels),
            await changed(server, f"{AUTHORITIES}/cluster/status", {"status": {"notAfter": None}}),
            await server.call("POST", REVOCATIONS, revocation),
            await server.call("POST", KEYS, successor),
        ]
        deleted = [
            await server.call("DELETE", f"{what}")
            for what in (f"{KEYS}/cluster-1", f"{AUTHORITIES}/cluster")
        ]

    assert [one.status for one in refused] == [422] * 8
    assert all("files" in one.text for one in refused)
    assert [one.status for one in deleted] == [403, 403]


async def test_only_the_number_of_its_newest_list_is_written(tmp_path: Path) -> None:
    """By the publisher, into the status; with nothing else, and never a lower one."""
    async with api(tmp_path / "data", **flags("", pair(tmp_path, "ca"))) as server:
        await shown(server)
        status = f"{KEYS}/cluster-1/status"
        number = {"revocationListNumber": 7}
        more = {"revocationListNumber": 9, "conditions": []}
        allowed = await changed(server, status, {"status": number})
        refused = [
            await changed(server, status, {"status": more}),
            await changed(server, status, {"status": {"revocationListNumber": 6}}),
            await changed(server, status, {"status": number}),
            await changed(server, f"{KEYS}/cluster-1", {"status": {"revocationListNumber": 9}}),
        ]
        after = (await shown(server))["cluster-1"]["status"]

    assert allowed.status == 200
    assert [one.status for one in refused] == [422] * 4
    assert after["revocationListNumber"] == 7


async def test_a_replaced_file_is_shown_as_the_next_key(tmp_path: Path) -> None:
    """The object of the old one goes when no live server reports it."""
    async with api(tmp_path / "data", **flags("", pair(tmp_path, "ca"))) as server:
        first = (await shown(server))["cluster-1"]
        await report(server, [first["status"]["keyID"]])
        pair(tmp_path, "ca")
        both = await shown(server)
        reported = (await shown(server, AUTHORITIES))["cluster"]["status"]
        await report(server, server.server.context.port(FileAuthorityObjects).key_ids)
        left = await shown(server)

    assert sorted(both) == ["cluster-1", "cluster-2"]
    assert [one["name"] for one in reported["keys"]] == ["cluster-2", "cluster-1"]
    assert reported["certificate"] == both["cluster-2"]["status"]["certificate"]
    assert sorted(left) == ["cluster-2"]


async def test_a_ca_that_was_shown_becomes_the_stored_one(tmp_path: Path) -> None:
    """Without the flags it is imported under its name; with them again, its stored key stays."""
    store, data = Kept(), tmp_path / "data"
    data.mkdir(mode=0o700)
    pair(data, "ca")
    given = flags("", {"cert_file": str(data / "ca.crt"), "key_file": str(data / "ca.key")})
    async with api(data, store=store, **given) as server:
        before = await shown(server)
        uid = (await shown(server, AUTHORITIES))["cluster"]["metadata"]["uid"]
    async with api(data, store=store) as server:
        after = await shown(server)
        authority = (await shown(server, AUTHORITIES))["cluster"]
        home = f"/api/v1/namespaces/{HOME}/secrets"
        secret = f"signing-key-{after['cluster-1']['metadata']['uid']}"
        private = await server.call("GET", f"{home}/{secret}")
    async with api(data, store=store, **given) as server:
        again = await shown(server)

    assert list(before) == list(after) == list(again) == ["cluster-1"]
    assert after["cluster-1"]["status"]["source"] == "Imported"
    assert after["cluster-1"]["status"]["revocationList"] == "cluster"
    assert authority["metadata"]["uid"] == uid
    assert authority["spec"]["key"]["algorithm"] == "ECDSA-P256"
    assert private.status == 200
    assert again["cluster-1"]["status"]["source"] == "Imported"


async def test_a_flag_that_is_gone_removes_the_objects(tmp_path: Path) -> None:
    """Also if the platform's authority is stored now."""
    store, data = Kept(), tmp_path / "data"
    given = flags("client_", pair(tmp_path, "clients"))
    async with api(data, store=store, **given) as server:
        assert len(await shown(server, AUTHORITIES)) == 1
    async with api(data, store=store) as server:
        await report(server, [])
        left = await shown(server, AUTHORITIES)
        made = await make(server, "cluster-2", authority="cluster", algorithm="ECDSA-P256")

    assert list(left) == ["cluster"]
    assert made["spec"]["state"] == "Published"
