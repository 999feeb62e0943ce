"""A Pod and its account: the default, the token volume, pull secrets, and a limited list."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from orchid.features.accounts.kinds.service_account import ServiceAccount
from orchid.features.accounts.policies import service_account
from orchid.features.accounts.policies.service_account import PodAccount, wants_token
from orchid.features.objects.kinds.pod import pod
from orchid.features.objects.kinds.pod.pod import Pod
from orchid.kernel.engine.request import Target
from orchid.kernel.wire.errors import Forbidden
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.references import LocalObjectReference, ObjectReference
from tests.unit.features.asking import a_request
from tests.unit.kernel.access.world import World, world

KIND: Any = pod.declare(ORCH)
TOKEN = f"{ORCH.token_volume_prefix}abcde"
LIMIT = ORCH.mountable_secrets_annotation
MIRROR = ORCH.mirror_annotation


class Words:
    def suffix(self) -> str:
        return "abcde"


@pytest.fixture
async def here() -> AsyncIterator[World]:
    async with world() as made:
        yield made


def a_pod(spec: dict[str, Any], **annotations: str) -> Pod:
    meta = ObjectMeta(name="p", namespace="ci", annotations=annotations)
    return Pod(metadata=meta, spec={"containers": [{"name": "c"}], **spec})


def account(name: str = "robot", **fields: Any) -> ServiceAccount:
    notes = fields.pop("annotations", {})
    meta = ObjectMeta(name=name, namespace="ci", uid="a1", annotations=notes)
    return ServiceAccount(metadata=meta, **fields)


async def admitted(here: World, new: Pod, old: Pod | None = None, **options: Any) -> Any:
    random: Any = Words()
    policy = PodAccount(ORCH, here.feed, random, options.pop("ensure", None))
    target = Target(
        verb="create", is_resource=True, resource="pods", namespace="ci", name="p", **options
    )
    made: Any = await policy.admit(a_request(target), KIND, new, old)
    return made


RUNS: dict[str, Any] = {"serviceAccountName": "robot"}


async def test_a_new_pod_gets_a_token_and_the_pull_secrets_of_its_account(here: World) -> None:
    """Each container that mounts nothing there; the volume is named at random."""
    await here.put(account(image_pull_secrets=(LocalObjectReference(name="registry"),)))
    own = {"name": "own", "mountPath": ORCH.token_mount_path}
    other = {"name": "other", "mountPath": "/data"}
    containers = [{"name": "a", "volumeMounts": [own]}, {"name": "b", "volumeMounts": [other]}]
    inner = {"initContainers": [{"name": "i"}], "volumes": [{"name": "other"}]}

    spec = (await admitted(here, a_pod({**RUNS, **inner, "containers": containers}))).spec

    mount = {"name": TOKEN, "readOnly": True, "mountPath": ORCH.token_mount_path}
    assert spec["containers"][0] == containers[0]
    assert spec["containers"][1]["volumeMounts"] == [other, mount]
    assert spec["initContainers"][0]["volumeMounts"] == [mount]
    assert [volume["name"] for volume in spec["volumes"]] == ["other", TOKEN]
    assert spec["volumes"][1]["projected"] == {
        "sources": [
            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
            {
                "configMap": {
                    "name": ORCH.root_ca_config_map,
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
        "defaultMode": 0o644,
    }
    assert spec["imagePullSecrets"] == [{"name": "registry"}]


async def test_what_a_pod_has_stays(here: World) -> None:
    """Its own pull secrets, its own mounts, and a token volume that it brings."""
    await here.put(account(image_pull_secrets=(LocalObjectReference(name="registry"),)))
    own = {"name": "own", "mountPath": ORCH.token_mount_path}
    full = {**RUNS, "containers": [{"name": "a", "volumeMounts": [own]}]}
    brought = {**RUNS, "volumes": [{"name": f"{ORCH.token_volume_prefix}mine"}]}

    mounted = (await admitted(here, a_pod({**full, "imagePullSecrets": [{"name": "x"}]}))).spec
    reused = (await admitted(here, a_pod(brought))).spec

    assert "volumes" not in mounted
    assert mounted["imagePullSecrets"] == [{"name": "x"}]
    assert reused["volumes"] == brought["volumes"]
    assert reused["containers"][0]["volumeMounts"][0]["name"] == f"{ORCH.token_volume_prefix}mine"


@pytest.mark.parametrize(
    ("own", "of_account", "wants"),
    [
        (None, None, True),
        (None, False, False),
        (None, True, True),
        (False, True, False),
        (True, False, True),
    ],
)
def test_a_pod_decides_about_its_token_before_its_account(
    own: Any, of_account: Any, wants: bool
) -> None:
    spec = {} if own is None else {"automountServiceAccountToken": own}

    assert wants_token(spec, account(automount_service_account_token=of_account)) is wants


async def test_an_account_that_is_missing_refuses(here: World) -> None:
    """Also one of the same name in another namespace."""
    await here.put(ServiceAccount(metadata=ObjectMeta(name="robot", namespace="prod", uid="a2")))

    with pytest.raises(Forbidden, match='ci/robot: serviceaccount "robot" not found'):
        await admitted(here, a_pod(RUNS))


async def test_the_default_account_is_awaited_and_created(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No other one is, and a dry run creates nothing; without a result it is missing."""
    created: list[str] = []

    async def ensure(namespace: str) -> None:
        created.append(namespace)
        await here.put(account("default"))

    with pytest.raises(Forbidden):
        await admitted(here, a_pod(RUNS), ensure=ensure)
    assert created == []

    made = await admitted(here, a_pod({}), ensure=ensure)
    assert (made.account, created) == ("default", ["ci"])
    assert (await admitted(here, a_pod({}), ensure=ensure)).account == "default"
    assert created == ["ci"]

    await here.delete(account("default"))
    monkeypatch.setattr(service_account, "PATIENCE", 0.01)
    with pytest.raises(Forbidden, match='serviceaccount "default" not found'):
        await admitted(here, a_pod({}))


LISTED = account(
    annotations={LIMIT: "true"},
    secrets=(ObjectReference(name="listed"),),
    image_pull_secrets=(LocalObjectReference(name="registry"),),
    automount_service_account_token=False,
)


def mounting(secret: str, pulls: str = "registry") -> Pod:
    volume = {"name": "v", "secret": {"secretName": secret}}
    return a_pod({**RUNS, "volumes": [volume], "imagePullSecrets": [{"name": pulls}]})


@pytest.mark.parametrize(
    ("secret", "pulls", "refusal"),
    [
        ("listed", "registry", ""),
        ("other", "registry", r'volumes\[0\].secret.secretName="other" .* reference that secret'),
        ("registry", "registry", 'secretName="registry" is not allowed'),
        ("listed", "other", r'imagePullSecrets\[0\].name="other" .* that imagePullSecret'),
        ("listed", "listed", r'imagePullSecrets\[0\].name="listed"'),
    ],
)
async def test_a_limited_account_allows_what_it_lists(
    here: World, secret: str, pulls: str, refusal: str
) -> None:
    """A list for images and another for the rest."""
    await here.put(LISTED)

    if not refusal:
        await admitted(here, mounting(secret, pulls))
        return
    with pytest.raises(Forbidden, match=refusal):
        await admitted(here, mounting(secret, pulls))


@pytest.mark.parametrize("value", ["1", "t", "T", "TRUE", "true", "True"])
async def test_every_way_to_switch_the_limit_on(here: World, value: str) -> None:
    await here.put(account(annotations={LIMIT: value}))

    with pytest.raises(Forbidden):
        await admitted(here, mounting("other"))


async def test_the_limit_is_off_with_another_word(here: World) -> None:
    await here.put(account(annotations={LIMIT: "no"}))

    await admitted(here, mounting("other"))


async def test_an_update_may_keep_what_was_named_and_add_what_is_listed(here: World) -> None:
    """A subresource names nothing; an update is not given a token."""
    await here.put(LISTED)
    kept = mounting("before")

    assert await admitted(here, kept, kept) is kept
    second = [*kept.spec["volumes"], {"secret": {"secretName": "other"}}]
    with pytest.raises(Forbidden, match=r'volumes\[1\].*"other"'):
        await admitted(here, a_pod({**kept.spec, "volumes": second}), kept)
    grown = a_pod({**kept.spec, "volumes": [*kept.spec["volumes"], {"secret": {}}]})
    assert await admitted(here, grown, kept) is grown
    assert await admitted(here, mounting("listed"), kept) == mounting("listed")
    with pytest.raises(Forbidden, match='secretName="other"'):
        await admitted(here, mounting("other"), kept)
    status = mounting("other")
    assert await admitted(here, status, kept, subresource="status") is status


SOURCES: Any = {"projected": {"sources": [{"configMap": {}}, {"serviceAccountToken": {}}]}}


@pytest.mark.parametrize(
    ("spec", "refusal"),
    [
        ({}, ""),
        ({"volumes": [{"projected": {"sources": [{"configMap": {}}]}}, {"projected": 7}]}, ""),
        (RUNS, "may not reference service accounts"),
        ({"imagePullSecrets": [{"name": "s"}]}, "may not reference secrets"),
        ({"volumes": [{"name": "x"}, SOURCES]}, "may not use ServiceAccountToken"),
    ],
)
async def test_a_mirror_pod_has_no_credentials(here: World, spec: Any, refusal: str) -> None:
    """It runs as no account, and is not changed."""
    new = a_pod(spec, **{MIRROR: "hash"})

    if not refusal:
        assert await admitted(here, new) is new
        return
    with pytest.raises(Forbidden, match=refusal):
        await admitted(here, new)
