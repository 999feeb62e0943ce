"""Accounts and the Pods that run as them: what the fields of a ServiceAccount mean for a Pod."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchid.features.accounts.kinds.service_account import ServiceAccount
from orchid.features.accounts.policies import service_account
from orchid.features.objects.kinds.pod.pod import PodFields
from orchid.features.objects.kinds.pod.references import REFERENCE_PATHS
from orchid.kernel.wire.schema import Fields, Node, Sequence, schema_of
from tests.api.world import Api, api

PODS = "/api/v1/namespaces/default/pods"
SA = "/api/v1/namespaces/default/serviceaccounts"
MERGE = {"content-type": "application/merge-patch+json"}
LIMITED = {"orch.io/enforce-mountable-secrets": "true"}
MIRROR = {"orch.io/config.mirror": "x"}
MOUNT_PATH = "/var/run/secrets/orch.io/serviceaccount"


def pod(name: str = "p", annotations: Any = None, **spec: Any) -> dict[str, Any]:
    containers = [{"name": "c", "image": "i"}]
    meta = {"name": name, "annotations": annotations or {}}
    return {"metadata": meta, "spec": {"containers": containers, **spec}}


async def account(server: Api, name: str = "default", annotations: Any = None, **rest: Any) -> None:
    meta = {"name": name, "annotations": annotations or {}}
    await server.make(SA, {"metadata": meta, **rest})


# --- which account --------------------------------------------------------------------------------


async def test_a_pod_without_an_account_runs_as_the_default_one(server: Api) -> None:
    """Both spellings say so, and nobody comes to own what the server decided."""
    await account(server)
    made = await server.make(PODS, pod())

    assert made["spec"]["serviceAccountName"] == made["spec"]["serviceAccount"] == "default"
    assert "f:serviceAccount" not in str(made["metadata"]["managedFields"])


@pytest.mark.parametrize("name", ["default", "nobody"])
async def test_an_account_that_does_not_exist_refuses_the_pod(server: Api, name: str) -> None:
    """In the words of the reference, and nothing is stored."""
    answer = await server.call("POST", PODS, pod(serviceAccountName=name))

    assert (answer.status, answer.json["reason"]) == (403, "Forbidden")
    assert answer.json["message"] == (
        f'pods "p" is forbidden: error looking up service account default/{name}: '
        f'serviceaccount "{name}" not found'
    )
    assert (await server.call("GET", PODS)).json["items"] == []


async def test_a_default_account_that_is_being_made_is_waited_for(
    server: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a new namespace the first Pod may come before the controller that makes the account."""
    monkeypatch.setattr(service_account, "PATIENCE", 60.0)
    accounts, waiting = server.server.feed.of(ServiceAccount), asyncio.Event()
    listen = accounts.listen

    def listened(*who: Any) -> None:
        waiting.set()
        listen(*who)

    monkeypatch.setattr(accounts, "listen", listened)
    asking = asyncio.create_task(server.call("POST", PODS, pod()))
    async with asyncio.timeout(10):
        await waiting.wait()
    await account(server)

    assert (await asking).status == 201


async def test_a_pod_may_be_the_first_object_of_its_namespace(
    server: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The namespace comes into being with it, and so does the account as which it runs."""
    monkeypatch.setattr(service_account, "PATIENCE", 60.0)
    place = "/api/v1/namespaces/fresh"
    asking = asyncio.create_task(server.call("POST", f"{place}/pods", pod()))
    async with server.watch("/api/v1/namespaces?watch=1&fieldSelector=metadata.name=fresh") as seen:
        await seen.next()
    await server.account("default", "fresh")

    assert (await asking).status == 201


# --- what it gives --------------------------------------------------------------------------------


async def test_the_token_volume_is_mounted_into_each_container(server: Api) -> None:
    """Token, authority and namespace, where programs look for them."""
    await account(server)
    inits = [{"name": "i", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}]
    made = (await server.make(PODS, pod(initContainers=inits)))["spec"]
    (volume,) = made["volumes"]
    mount = {"name": volume["name"], "readOnly": True, "mountPath": MOUNT_PATH}

    assert volume["name"].startswith("orch-api-access-")
    assert volume["projected"] == {
        "sources": [
            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
            {
                "configMap": {
                    "name": "orch-root-ca.crt",
                    "items": [{"key": "ca.crt", "path": "ca.crt"}],
                }
            },
            {
                "downwardAPI": {
                    "items": [
                        {
                            "path": "namespace",
                            "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"},
                        }
                    ]
                }
            },
        ],
        "defaultMode": 420,
    }
    assert made["containers"][0]["volumeMounts"] == [mount]
    assert made["initContainers"][0]["volumeMounts"] == [
        {"name": "v", "mountPath": "/v"},
        mount,
    ]


async def test_the_names_follow_the_naming(server_files: Path) -> None:
    """Unmodified programs look for their token where Kubernetes puts it."""
    async with api(server_files, naming="kubernetes") as server:
        await account(server)
        made = (await server.make(PODS, pod()))["spec"]

    (mount,) = made["containers"][0]["volumeMounts"]
    assert mount["name"].startswith("kube-api-access-")
    assert mount["mountPath"] == "/var/run/secrets/kubernetes.io/serviceaccount"
    assert "kube-root-ca.crt" in str(made["volumes"])


async def test_a_container_with_something_in_that_place_keeps_it(server: Api) -> None:
    """Where all have, there is no volume either."""
    await account(server)
    own = [{"name": "own", "mountPath": MOUNT_PATH}]
    containers = [{"name": "c", "volumeMounts": own}]
    made = (await server.make(PODS, pod(containers=containers)))["spec"]

    assert made["containers"] == containers
    assert "volumes" not in made


async def test_a_volume_of_that_name_is_used(server: Api) -> None:
    """A Pod that already has the volume gets no second one."""
    await account(server)
    own = [{"name": "orch-api-access-mine", "emptyDir": {}}]
    made = (await server.make(PODS, pod(volumes=own)))["spec"]

    assert made["volumes"] == own
    assert made["containers"][0]["volumeMounts"][0]["name"] == "orch-api-access-mine"


@pytest.mark.parametrize(
    ("of_account", "of_pod", "mounted"),
    [
        (None, None, True),
        (True, None, True),
        (False, None, False),
        (False, True, True),
        (True, False, False),
        (None, False, False),
    ],
)
async def test_the_pod_decides_about_its_token_else_the_account(
    server: Api, of_account: bool | None, of_pod: bool | None, mounted: bool
) -> None:
    """`automountServiceAccountToken` of both, and of neither."""
    await account(server, automountServiceAccountToken=of_account)
    made = await server.make(PODS, pod(automountServiceAccountToken=of_pod))

    assert ("volumes" in made["spec"]) is mounted


async def test_pull_secrets_are_copied_to_a_pod_that_has_none(server: Api) -> None:
    """A Pod with its own keeps them alone."""
    await account(server, imagePullSecrets=[{"name": "a"}, {"name": "b"}])
    without = await server.make(PODS, pod("without"))
    own = await server.make(PODS, pod("own", imagePullSecrets=[{"name": "mine"}]))

    assert without["spec"]["imagePullSecrets"] == [{"name": "a"}, {"name": "b"}]
    assert own["spec"]["imagePullSecrets"] == [{"name": "mine"}]


async def test_only_a_new_pod_is_given_anything(server: Api) -> None:
    """An update says what it says."""
    await account(server, automountServiceAccountToken=False)
    await server.make(PODS, pod())
    await server.call(
        "PATCH",
        f"{SA}/default",
        b'{"automountServiceAccountToken":true,"imagePullSecrets":[{"name":"a"}]}',
        headers=MERGE,
    )
    patched = await server.call(
        "PATCH", f"{PODS}/p", b'{"metadata":{"labels":{"x":"y"}}}', headers=MERGE
    )

    assert patched.status == 200
    assert not {"volumes", "imagePullSecrets"} & set(patched.json["spec"])


# --- what it allows -------------------------------------------------------------------------------


def secret_places(node: Node, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Where a Pod's own declaration has the name of a Secret: the name inside what is called so."""
    if isinstance(node, Sequence):
        yield from secret_places(node.items, path)
    elif isinstance(node, Fields):
        for name, known in node.fields.items():
            here = (*path, name)
            about_secrets = any("secret" in word.lower() for word in here)
            if about_secrets and name in ("name", "secretName"):
                yield here
            else:
                yield from secret_places(known.node, here)


def spec_with(path: tuple[str, ...], name: str) -> dict[str, Any]:
    """A spec with a Secret's name in one place."""
    value: Any = name
    for word in reversed(path):
        if word in LISTS:
            value = [{"name": "n", **value}] if "ources" not in word else [value]
        value = {word: value}
    spec: dict[str, Any] = value
    return spec


LISTS = {
    *("volumes", "sources", "env", "envFrom", "imagePullSecrets"),
    *("containers", "initContainers", "ephemeralContainers"),
}
DECLARED = sorted(secret_places(schema_of(PodFields)))


def test_the_list_is_that_of_the_declaration() -> None:
    """Every field of a Pod that can name a Secret is looked at, and none is forgotten later."""
    assert sorted(REFERENCE_PATHS["secrets"]) == DECLARED
    assert len(DECLARED) == 18


@pytest.mark.parametrize("path", DECLARED, ids=".".join)
async def test_a_limited_account_allows_the_secrets_that_it_lists(
    server: Api, path: tuple[str, ...]
) -> None:
    """In each place: one that is listed is allowed, another is not, neither new nor later."""
    pulls = path[0] == "imagePullSecrets"
    listed = {"imagePullSecrets" if pulls else "secrets": [{"name": "mine"}]}
    await account(server, annotations=LIMITED, automountServiceAccountToken=False, **listed)
    allowed = await server.call("POST", PODS, pod("a", **spec_with(path, "mine")))
    refused = await server.call("POST", PODS, pod("b", **spec_with(path, "other")))
    later = await server.call(
        "PATCH", f"{PODS}/a", {"spec": spec_with(path, "other")}, headers=MERGE
    )

    assert allowed.status == 201
    assert (refused.status, later.status) == (403, 403)
    sort = "imagePullSecret" if pulls else "secret"
    ending = (
        f'="other" is not allowed because service account default does not reference that {sort}'
    )
    assert refused.json["message"].startswith('pods "b" is forbidden: ' + path[0])
    assert refused.json["message"].endswith(ending)


@pytest.mark.parametrize(
    ("value", "limits"),
    [("true", True), ("1", True), ("T", True), ("yes", False), ("false", False)],
)
async def test_the_annotation_limits_when_it_says_so(server: Api, value: str, limits: bool) -> None:
    """Any other value, and any other account, limits nothing."""
    await account(server, annotations={"orch.io/enforce-mountable-secrets": value})
    answer = await server.call(
        "POST", PODS, pod(volumes=[{"name": "v", "secret": {"secretName": "x"}}])
    )

    assert answer.status == (403 if limits else 201)


async def test_pull_secrets_and_mounted_ones_are_two_lists(server: Api) -> None:
    """A Secret for pulling images may not be mounted."""
    await account(server, annotations=LIMITED, imagePullSecrets=[{"name": "pull"}])
    mounting = await server.call(
        "POST", PODS, pod(volumes=[{"name": "v", "secret": {"secretName": "pull"}}])
    )

    assert mounting.status == 403


# --- mirror Pods ----------------------------------------------------------------------------------


async def test_a_mirror_pod_is_left_as_it_is(server: Api) -> None:
    """It has no account, so there is nothing to look up and nothing to add."""
    made = await server.make(PODS, pod(annotations=MIRROR))

    assert set(made["spec"]) == {"containers"}


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"serviceAccountName": "app"}, "a mirror pod may not reference service accounts"),
        ({"imagePullSecrets": [{"name": "x"}]}, "a mirror pod may not reference secrets"),
        (
            {
                "volumes": [
                    {
                        "name": "v",
                        "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]},
                    }
                ]
            },
            "a mirror pod may not use ServiceAccountToken volume projections",
        ),
    ],
)
async def test_a_mirror_pod_has_no_identity(server: Api, spec: Any, text: str) -> None:
    """A Pod that a node runs by itself proves no identity."""
    answer = await server.call("POST", PODS, pod(annotations=MIRROR, **spec))

    assert (answer.status, answer.json["message"]) == (403, f'pods "p" is forbidden: {text}')
