"""The modes of impersonation: their users, the rights they check, and their refusals."""

import itertools
from collections.abc import Iterable
from time import monotonic

import pytest

from orchid.kernel.access.impersonation import impersonation
from orchid.kernel.access.impersonation.impersonation import Impersonated, Impersonation
from orchid.kernel.engine.interfaces import Decision, Verdict
from orchid.kernel.engine.request import Target
from orchid.kernel.wire.errors import Forbidden
from orchid.kernel.wire.naming import KUBERNETES, ORCH, Naming
from orchid.kernel.wire.struct import replace
from orchid.kernel.wire.user import UserInfo
from tests.unit.kernel.access.presenting import presented

ALICE = UserInfo(username="alice", groups=("dev",))
AGENT = UserInfo(
    username="system:serviceaccount:ops:agent",
    groups=("system:serviceaccounts",),
    extra={
        "authentication.orch.io/node-name": ("n1",),
        "authentication.orch.io/pod-name": ("agent-x",),
    },
)
LIST_PODS = Target(
    "list",
    "/api/v1/namespaces/ci/pods",
    is_resource=True,
    version="v1",
    resource="pods",
    namespace="ci",
    field_selector="spec.nodeName=n1",
)
METRICS = Target("get", "/metrics")

Header = tuple[str, str]
NODE: Header = ("Impersonate-User", "system:node:n1")
ACCOUNT: Header = ("Impersonate-User", "system:serviceaccount:ci:app")
CAROL: Header = ("Impersonate-User", "carol")
UID: Header = ("Impersonate-Uid", "u1")
GROUP: Header = ("Impersonate-Group", "g1")
EXTRA: Header = ("Impersonate-Extra-acme.io%2Fscope", "view")


class Rights:
    """Allows the verbs it is given, by their beginning, but not on some resources."""

    def __init__(self, *verbs: str, refused: Iterable[str] = (), error: str = "") -> None:
        self.verbs = verbs
        self._refused = set(refused)
        self._error = error
        self.asked: list[Target] = []
        self.users: list[UserInfo] = []

    async def authorize(self, user: UserInfo, target: Target) -> Decision:
        self.asked.append(target)
        self.users.append(user)
        what = f"{target.full_resource}={target.name}"
        if target.verb.startswith(self.verbs) and what not in self._refused:
            return Decision(Verdict.ALLOW)
        return Decision(Verdict.NO_OPINION, error=self._error)

    @property
    def questions(self) -> list[str]:
        return [
            " ".join((t.verb, t.group, t.full_resource or t.path, t.namespace, t.name))
            for t in self.asked
        ]


EVERYTHING = "impersonate"


def plain_only(rights: Rights) -> Rights:
    """Rights to the plain verb alone."""
    allow = rights.authorize

    async def authorize(user: UserInfo, target: Target) -> Decision:
        rights.verbs = (EVERYTHING,) if target.verb == "impersonate" else ()
        return await allow(user, target)

    rights.authorize = authorize  # one instance
    return rights


async def become(
    *headers: Header,
    rights: Rights,
    caller: UserInfo = ALICE,
    target: Target = LIST_PODS,
    naming: Naming = ORCH,
) -> Impersonated:
    found = await Impersonation(naming, rights, monotonic).apply(
        caller, presented(*headers), target
    )
    assert found is not None
    return found


async def refusal(
    *headers: Header, rights: Rights, caller: UserInfo = ALICE, target: Target = LIST_PODS
) -> str:
    with pytest.raises(Forbidden) as caught:
        await become(*headers, rights=rights, caller=caller, target=target)
    return caught.value.message


NAMES = {"node": NODE, "serviceaccount": ACCOUNT, "user": CAROL}
MORE = [
    more for count in range(4) for more in itertools.combinations((UID, GROUP, EXTRA), count)
]  # fmt: skip
COMBINATIONS = [(sort, more) for sort in NAMES for more in MORE]


def expected_mode(sort: str, more: tuple[Header, ...], caller: UserInfo) -> str:
    if sort == "user":
        return "impersonate:user-info"
    if more:
        return ""
    if sort == "serviceaccount":
        return "impersonate:serviceaccount"
    return "impersonate:associated-node" if caller is AGENT else "impersonate:arbitrary-node"


@pytest.mark.parametrize("caller", [ALICE, AGENT], ids=["alice", "agent"])
@pytest.mark.parametrize(("sort", "more"), COMBINATIONS)
async def test_every_combination_of_headers_has_its_mode(
    sort: str, more: tuple[Header, ...], caller: UserInfo
) -> None:
    """Nodes and accounts by their name alone, others with anything; the rest is legacy."""
    found = await become(NAMES[sort], *more, rights=Rights(EVERYTHING), caller=caller)

    assert found.constraint == expected_mode(sort, more, caller)
    assert found.user.uid == ("u1" if UID in more else "")
    assert ("g1" in found.user.groups) == (GROUP in more)
    assert found.user.extra == ({"acme.io/scope": ("view",)} if EXTRA in more else {})
    assert "system:authenticated" in found.user.groups


@pytest.mark.parametrize(("sort", "more"), COMBINATIONS)
async def test_the_plain_right_serves_every_combination(
    sort: str, more: tuple[Header, ...]
) -> None:
    """The verb impersonate alone allows every combination."""
    found = await become(NAMES[sort], *more, rights=plain_only(Rights()), caller=AGENT)

    assert found.constraint == ""
    assert found.user.username == NAMES[sort][1]
    assert "system:nodes" not in found.user.groups


@pytest.mark.parametrize(
    ("header", "caller", "groups"),
    [
        (NODE, AGENT, ("system:nodes", "system:authenticated")),
        (NODE, ALICE, ("system:nodes", "system:authenticated")),
        (
            ACCOUNT,
            ALICE,
            ("system:serviceaccounts", "system:serviceaccounts:ci", "system:authenticated"),
        ),
        (CAROL, ALICE, ("system:authenticated",)),
        (("Impersonate-User", "system:anonymous"), ALICE, ("system:unauthenticated",)),
    ],
)
async def test_groups_come_with_the_name(
    header: Header, caller: UserInfo, groups: tuple[str, ...]
) -> None:
    """A node is among the nodes, an account among the accounts."""
    found = await become(header, rights=Rights(EVERYTHING), caller=caller)

    assert found.user == UserInfo(header[1], groups=groups)


ON_PODS = "impersonate-on:{}:list  pods ci "
AUTHENTICATION = "authentication.orch.io"


@pytest.mark.parametrize(
    ("headers", "caller", "questions"),
    [
        (
            [NODE],
            AGENT,
            [
                ON_PODS.format("associated-node"),
                f"impersonate:associated-node {AUTHENTICATION} nodes  *",
            ],
        ),
        (
            [NODE],
            ALICE,
            [
                ON_PODS.format("arbitrary-node"),
                f"impersonate:arbitrary-node {AUTHENTICATION} nodes  n1",
            ],
        ),
        (
            [ACCOUNT],
            ALICE,
            [
                ON_PODS.format("serviceaccount"),
                f"impersonate:serviceaccount {AUTHENTICATION} serviceaccounts ci app",
            ],
        ),
        (
            [EXTRA, GROUP, UID, CAROL],
            ALICE,
            [
                ON_PODS.format("user-info"),
                f"impersonate:user-info {AUTHENTICATION} users  carol",
                f"impersonate:user-info {AUTHENTICATION} uids  u1",
                f"impersonate:user-info {AUTHENTICATION} groups  g1",
                f"impersonate:user-info {AUTHENTICATION} userextras/acme.io/scope  view",
            ],
        ),
    ],
)
async def test_what_a_constrained_mode_asks(
    headers: list[Header], caller: UserInfo, questions: list[str]
) -> None:
    """First for the request itself, then for the identity: name, uid, groups, extra."""
    rights = Rights(EVERYTHING)

    await become(*headers, rights=rights, caller=caller)

    assert rights.questions == questions
    assert rights.asked[0] == replace(LIST_PODS, verb=rights.asked[0].verb)
    assert {target.version for target in rights.asked} == {"v1"}


async def test_a_path_is_asked_about_too() -> None:
    """A request for no resource is asked about by its path, with its own verb."""
    rights = Rights(EVERYTHING)

    await become(CAROL, rights=rights, target=METRICS)

    assert rights.asked[0] == Target("impersonate-on:user-info:get", "/metrics")


async def test_the_groups_of_the_product_follow_the_naming() -> None:
    """With Kubernetes' names the rights are in its group, and so is the node of a caller."""
    caller = UserInfo(
        "system:serviceaccount:ops:agent", extra={"authentication.kubernetes.io/node-name": ("n1",)}
    )
    rights = Rights(EVERYTHING)

    found = await become(NODE, rights=rights, caller=caller, naming=KUBERNETES)

    assert found.constraint == "impersonate:associated-node"
    assert rights.asked[1].group == "authentication.k8s.io"
    assert rights.users[0].extra == {
        "authentication.kubernetes.io/associated-node-keys": (
            "authentication.kubernetes.io/node-name",
        )
    }


async def test_the_associated_node_mode_shows_which_extras_there_are_but_not_their_values() -> None:
    """One right has to serve an account on every node, so no question may name the node."""
    rights = Rights(EVERYTHING)

    await become(NODE, rights=rights, caller=AGENT)

    keys = ("authentication.orch.io/node-name", "authentication.orch.io/pod-name")
    for user in rights.users:
        assert user.username == AGENT.username
        assert user.extra == {"authentication.orch.io/associated-node-keys": keys}


@pytest.mark.parametrize(
    "caller",
    [
        UserInfo("alice", extra=AGENT.extra),
        UserInfo(AGENT.username),
        UserInfo(AGENT.username, extra={"authentication.orch.io/node-name": ("n2",)}),
        UserInfo(AGENT.username, extra={"authentication.orch.io/node-name": ("n1", "n2")}),
    ],
)
async def test_only_an_account_on_that_very_node_is_associated_with_it(caller: UserInfo) -> None:
    """No user, no account elsewhere, and none that names two nodes."""
    found = await become(NODE, rights=Rights(EVERYTHING), caller=caller)

    assert found.constraint == "impersonate:arbitrary-node"


@pytest.mark.parametrize("name", ["system:node:", "system:node:UPPER", "system:nodes:n1"])
async def test_a_name_that_only_looks_like_a_node_is_a_user(name: str) -> None:
    """A malformed node name gets no group of nodes."""
    found = await become(("Impersonate-User", name), rights=Rights(EVERYTHING))

    assert found == Impersonated(
        UserInfo(name, groups=("system:authenticated",)), "impersonate:user-info"
    )


# --- many values ----------------------------------------------------------------------------------

FOUR_GROUPS = [("Impersonate-Group", name) for name in ("a", "b", "c", "d")]
FOUR_EXTRAS = [
    ("Impersonate-Extra-acme.io%2Fa", "1"),
    ("Impersonate-Extra-acme.io%2Fa", "2"),
    ("Impersonate-Extra-acme.io%2Fb", "3"),
    ("Impersonate-Extra-acme.io%2Fb", "4"),
]


@pytest.mark.parametrize(
    ("many", "star", "single"),
    [
        (FOUR_GROUPS, "groups=*", ["groups=a", "groups=b", "groups=c", "groups=d"]),
        (
            FOUR_EXTRAS,
            "userextras/*=*",
            [
                "userextras/acme.io/a=1",
                "userextras/acme.io/a=2",
                "userextras/acme.io/b=3",
                "userextras/acme.io/b=4",
            ],
        ),
    ],
)
async def test_of_many_values_the_right_to_all_is_asked_for_first(
    many: list[Header], star: str, single: list[str]
) -> None:
    """From four values on, one question may do; if it does not, each is asked for."""
    for right_to_all in (True, False):
        rights = Rights(EVERYTHING, refused=() if right_to_all else (star,))

        found = await become(CAROL, *many, rights=rights)

        asked = [f"{t.full_resource}={t.name}" for t in rights.asked[2:]]
        assert asked == ([star] if right_to_all else [star, *single])
        assert found.constraint == "impersonate:user-info"


async def test_three_values_are_asked_for_one_by_one() -> None:
    """Below four there is no question about all."""
    rights = Rights(EVERYTHING)

    await become(CAROL, *FOUR_GROUPS[:3], *FOUR_EXTRAS[:3], rights=rights)

    assert not any(target.name == "*" for target in rights.asked)


# --- refusals -------------------------------------------------------------------------------------

CLUSTER = f'in API group "{AUTHENTICATION}" at the cluster scope'


@pytest.mark.parametrize(
    ("headers", "caller", "verbs", "message"),
    [
        (
            [CAROL],
            ALICE,
            [],
            'users "carol" is forbidden: User "alice" cannot impersonate resource "users" in API '
            'group "" at the cluster scope',
        ),
        (
            [NODE],
            AGENT,
            [],
            'users "system:node:n1" is forbidden: User "system:serviceaccount:ops:agent" cannot '
            'impersonate resource "users" in API group "" at the cluster scope',
        ),
        (
            [NODE],
            AGENT,
            ["impersonate-on:"],
            f'nodes.{AUTHENTICATION} "*" is forbidden: User "system:serviceaccount:ops:agent" '
            f'cannot impersonate:associated-node resource "nodes" {CLUSTER}',
        ),
        (
            [NODE],
            ALICE,
            ["impersonate-on:"],
            f'nodes.{AUTHENTICATION} "n1" is forbidden: User "alice" cannot '
            f'impersonate:arbitrary-node resource "nodes" {CLUSTER}',
        ),
        (
            [ACCOUNT],
            ALICE,
            ["impersonate-on:"],
            f'serviceaccounts.{AUTHENTICATION} "app" is forbidden: User "alice" cannot '
            f'impersonate:serviceaccount resource "serviceaccounts" in API group '
            f'"{AUTHENTICATION}" in the namespace "ci"',
        ),
        (
            [ACCOUNT, GROUP],
            ALICE,
            ["impersonate-on:", "impersonate:"],
            'serviceaccounts "app" is forbidden: User "alice" cannot impersonate resource '
            '"serviceaccounts" in API group "" in the namespace "ci"',
        ),
    ],
)
async def test_the_first_refusal_is_the_answer(
    headers: list[Header], caller: UserInfo, verbs: list[str], message: str
) -> None:
    """The refusal is that of the first mode in which the caller has some right."""
    assert await refusal(*headers, rights=Rights(*verbs), caller=caller) == message


USER_INFO = ("impersonate-on:user-info:", "impersonate:user-info")


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (
            ("Impersonate-Group", ""),
            f'groups.{AUTHENTICATION} is forbidden: User "alice" cannot impersonate:user-info '
            f'resource "groups" {CLUSTER}: impersonating the empty string group is not allowed',
        ),
        (
            ("Impersonate-Group", "system:masters"),
            f'groups.{AUTHENTICATION} "system:masters" is forbidden: User "alice" cannot '
            f'impersonate:user-info resource "groups" {CLUSTER}: impersonating the system:masters '
            "group is not allowed",
        ),
        (
            ("Impersonate-Extra-", "v"),
            "impersonating the empty string key in extra is not allowed",
        ),
        (
            ("Impersonate-Extra-foo", "v"),
            "impersonating an invalid key in extra is not allowed: extra.key: Invalid value: "
            '"foo": must be a domain-prefixed path (such as "acme.io/foo")',
        ),
        (
            ("Impersonate-Extra-acme.io%2F%41", "v"),
            'impersonating a non-lowercase key in extra is not allowed: "acme.io/A"',
        ),
        (
            ("Impersonate-Extra-acme.io%2Fa", ""),
            "impersonating the empty string value in extra is not allowed",
        ),
    ],
)
async def test_what_no_constrained_mode_takes_over(header: Header, message: str) -> None:
    """Only the plain right reaches these, whatever else a caller may do."""
    if not message.startswith("groups"):
        message = (
            f'userextras.{AUTHENTICATION} is forbidden: User "alice" cannot impersonate:user-info '
            f'resource "userextras" {CLUSTER}: {message}'
        )

    assert await refusal(CAROL, header, rights=Rights(*USER_INFO)) == message

    found = await become(CAROL, header, rights=Rights(EVERYTHING))
    assert found.constraint == ""


async def test_an_authorizer_that_fails_refuses_and_is_quoted() -> None:
    """A question that could not be asked counts as not allowed."""
    message = await refusal(CAROL, rights=Rights(error="no answer"), target=METRICS)

    assert message == (
        'users "carol" is forbidden: User "alice" cannot impersonate resource "users" in API group '
        '"" at the cluster scope: no answer'
    )


# --- memory and counts ----------------------------------------------------------------------------


async def test_the_mode_that_served_last_is_tried_first() -> None:
    """A caller who once needed the plain right is served by it while it lasts, and asked less."""
    rights = Rights(EVERYTHING)
    acting = Impersonation(ORCH, rights, monotonic)
    masters = ("Impersonate-Group", "system:masters")

    await acting.apply(ALICE, presented(CAROL, masters), LIST_PODS)
    rights.asked.clear()
    again = await acting.apply(ALICE, presented(NODE), LIST_PODS)
    other = await acting.apply(UserInfo("bob"), presented(NODE), LIST_PODS)

    assert again == Impersonated(UserInfo(NODE[1], groups=("system:authenticated",)))
    assert rights.questions[0] == "impersonate  users  system:node:n1"
    assert other is not None
    assert other.constraint == "impersonate:arbitrary-node"


async def test_a_right_that_is_taken_away_is_gone_at_once() -> None:
    """Only the order is cached, never a decision."""
    rights = Rights(EVERYTHING)
    acting = Impersonation(ORCH, rights, monotonic)
    await acting.apply(ALICE, presented(CAROL), LIST_PODS)
    rights.verbs = ()

    with pytest.raises(Forbidden, match='cannot impersonate resource "users"'):
        await acting.apply(ALICE, presented(CAROL), LIST_PODS)


async def test_the_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller with the oldest entry is dropped from the cache."""
    monkeypatch.setattr(impersonation, "MOST_CACHED", 1)
    acting = Impersonation(ORCH, Rights(EVERYTHING), monotonic)
    plain = presented(CAROL, ("Impersonate-Group", "system:masters"))

    await acting.apply(ALICE, plain, LIST_PODS)
    await acting.apply(UserInfo("bob"), plain, LIST_PODS)
    found = await acting.apply(ALICE, presented(CAROL), LIST_PODS)

    assert found is not None
    assert found.constraint == "impersonate:user-info"


async def test_attempts_and_questions_are_counted_by_mode() -> None:
    """The families have the reference's names and labels; a refusal has no mode."""
    rights = Rights(*USER_INFO)
    acting = Impersonation(ORCH, rights, monotonic)
    await acting.apply(ALICE, presented(CAROL), LIST_PODS)
    with pytest.raises(Forbidden):
        await acting.apply(ALICE, presented(ACCOUNT), LIST_PODS)

    families = {family.name: family for family in (m.family() for m in acting.metrics.all)}

    attempts = families["apiserver_impersonation_attempts_total"].samples
    assert {(sample.labels, sample.value) for sample in attempts} == {
        ((("mode", "user-info"), ("decision", "allowed")), 1),
        ((("mode", ""), ("decision", "denied")), 1),
    }
    questions = families["apiserver_impersonation_authorization_attempts_total"].samples
    assert {(sample.labels, sample.value) for sample in questions} == {
        ((("mode", "user-info"), ("decision", "allowed")), 2),
        ((("mode", "serviceaccount"), ("decision", "denied")), 1),
        ((("mode", "legacy"), ("decision", "denied")), 1),
    }
    assert {name for name in families if name.endswith("_seconds")} == {
        "apiserver_impersonation_attempts_duration_seconds",
        "apiserver_impersonation_authorization_attempts_duration_seconds",
    }
