"""Where objects may live: on first use, strictly, and in namespaces on their way out."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from orchid.features.accounts.kinds.service_account import ServiceAccount
from orchid.features.accounts.kinds.token_request import TokenRequest
from orchid.features.objects.kinds.namespace import Namespace
from orchid.features.objects.kinds.node import Node
from orchid.features.objects.policies.namespace_lifecycle import NamespaceLifecycle
from orchid.kernel.engine.admission import Admission
from orchid.kernel.wire.errors import Forbidden, NotFound
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.status import StatusCause
from tests.unit.features.asking import NOW, TOKENS, Rights, a_request
from tests.unit.features.rights.policy_world import ask, meta, policy_world
from tests.unit.kernel.access.world import World

APP = ServiceAccount(metadata=meta("app", "ci"))
MAY_CREATE = Rights(("create", "namespaces", "ci"))


@pytest.fixture
async def here() -> AsyncIterator[World]:
    """A world without namespaces."""
    async with policy_world() as made:
        yield made


class Made:
    """Makes namespaces, and counts them."""

    def __init__(self) -> None:
        self.names: list[str] = []

    async def __call__(self, name: str) -> None:
        self.names.append(name)


def lifecycle(
    here: World, ensure: Made | None, rights: Rights = MAY_CREATE, creators: tuple[str, ...] = ()
) -> NamespaceLifecycle:
    namespaces = here.feed.of(Namespace)
    return NamespaceLifecycle(ORCH, here.feed, namespaces, rights, ensure=ensure, creators=creators)


async def judge(
    here: World, ensure: Made | None, new: Any, old: Any = None, **options: Any
) -> None:
    """Both hooks, as the engine calls them."""
    kind = here.catalog.of(type(new if new is not None else old))
    request = a_request(ask("create", kind.plural, "ci" if kind.namespaced else ""), **options)
    policy = Admission([lifecycle(here, ensure)])
    if new is not None:
        assert await policy.admit(request, kind, new, old) is new
    await policy.review(request, kind, new, old)


async def test_a_namespace_comes_with_its_first_object(here: World) -> None:
    """It is made once the object is known to be valid, and not made again."""
    made = Made()

    await judge(here, made, APP)
    await here.put(Namespace(metadata=meta("ci")))
    await judge(here, made, APP)

    assert made.names == ["ci"]


@pytest.mark.parametrize(
    ("new", "old", "options"),
    [
        (APP, APP, {}),
        (None, APP, {}),
        (APP, None, {"dry_run": True}),
        (Node(metadata=meta("n1")), None, {}),
    ],
)
async def test_nothing_else_makes_a_namespace(
    here: World, new: Any, old: Any, options: dict[str, Any]
) -> None:
    """Changes, deletions, dry runs and objects of the whole cluster do not."""
    made = Made()

    await judge(here, made, new, old, **options)

    assert made.names == []


async def test_strictly_an_unknown_namespace_is_not_found(here: World) -> None:
    """The answer names the namespace, before the object is even looked at."""
    with pytest.raises(NotFound) as caught:
        await judge(here, None, APP)

    assert caught.value.message == 'namespaces "ci" not found'
    assert caught.value.details is not None
    assert (caught.value.details.name, caught.value.details.kind) == ("ci", "namespaces")
    await here.put(Namespace(metadata=meta("ci")))
    await judge(here, None, APP)


@pytest.mark.parametrize("ensure", [None, Made()])
async def test_nothing_new_comes_into_a_namespace_on_its_way_out(
    here: World, ensure: Made | None
) -> None:
    """Creating is refused with its cause; changing and deleting go on."""
    await here.put(Namespace(metadata=meta("ci", deletion_timestamp=NOW)))

    with pytest.raises(Forbidden) as caught:
        await judge(here, ensure, APP)

    assert caught.value.message == (
        'serviceaccounts "app" is forbidden: unable to create new content in namespace ci '
        "because it is being terminated"
    )
    assert caught.value.details is not None
    assert caught.value.details.causes == (
        StatusCause(
            reason="NamespaceTerminating",
            message="namespace ci is being terminated",
            field="metadata.namespace",
        ),
    )
    await judge(here, ensure, APP, APP)
    await judge(here, ensure, None, APP)


@pytest.mark.parametrize(
    ("meta_fields", "shown"), [({"generate_name": "x-"}, "x-"), ({}, "Unknown")]
)
async def test_a_name_that_is_yet_to_come_is_stood_for(
    here: World, meta_fields: dict[str, str], shown: str
) -> None:
    """The refusal has the generateName in place of the name."""
    await here.put(Namespace(metadata=meta("ci", deletion_timestamp=NOW)))
    nameless = ServiceAccount(metadata=meta("", "ci", **meta_fields))

    with pytest.raises(Forbidden, match=f'serviceaccounts "{shown}" is forbidden'):
        await judge(here, None, nameless)


@pytest.mark.parametrize("name", ["default", "orch-system", "orch-public"])
async def test_the_servers_own_namespaces_stay(here: World, name: str) -> None:
    """They may not be deleted; others may."""
    with pytest.raises(Forbidden) as caught:
        await judge(here, None, None, Namespace(metadata=meta(name)))

    assert caught.value.message == (
        f'namespaces "{name}" is forbidden: this namespace may not be deleted'
    )
    await judge(here, None, None, Namespace(metadata=meta("ci")))


async def test_acting_kinds_need_no_namespace(here: World) -> None:
    """A review or a token request stores nothing, so its namespace need not exist."""
    request = a_request(ask("create", "serviceaccounts/token", "ci", "app"))
    new = TokenRequest()

    assert await Admission([lifecycle(here, None)]).admit(request, TOKENS, new, None) is new


async def test_the_right_to_create_a_namespace_is_that_of_a_request_for_it(here: World) -> None:
    """With the namespace itself as the namespace, as in its path."""
    rights, made = Rights(("create", "namespaces", "ci")), Made()
    policy = lifecycle(here, made, rights)
    kind = here.catalog.of(ServiceAccount)
    request = a_request(ask("create", "serviceaccounts", "ci"))

    await policy.admit(request, kind, APP, None)
    await policy.review(request, kind, APP, None)

    assert [(one.version, one.namespace, one.name) for one in rights.asked] == [("v1", "ci", "ci")]


@pytest.mark.parametrize("creators", [("eve",), ("someone", "dev")])
async def test_who_is_named_needs_no_right_to_bring_a_namespace(
    here: World, creators: tuple[str, ...]
) -> None:
    """By the name of the user or of one of the groups; nobody is asked then."""
    rights, made = Rights(), Made()
    policy = lifecycle(here, made, rights, creators)
    kind = here.catalog.of(ServiceAccount)
    request = a_request(ask("create", "serviceaccounts", "ci"))

    await policy.admit(request, kind, APP, None)
    await policy.review(request, kind, APP, None)

    assert (made.names, rights.asked) == (["ci"], [])


@pytest.mark.parametrize("dry_run", [False, True])
async def test_without_the_right_nothing_comes_into_a_missing_namespace(
    here: World, dry_run: bool
) -> None:
    """The answer is the strict one: there is no such namespace."""
    rights, made = Rights(("create", "namespaces", "other")), Made()
    policy = lifecycle(here, made, rights, ("mallory",))
    request = a_request(ask("create", "serviceaccounts", "ci"), dry_run=dry_run)

    with pytest.raises(NotFound) as refusal:
        await policy.admit(request, here.catalog.of(ServiceAccount), APP, None)

    assert refusal.value.message == 'namespaces "ci" not found'
    assert made.names == []
