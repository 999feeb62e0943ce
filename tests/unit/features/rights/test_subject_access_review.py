"""The access reviews: what may be asked, what is answered, and every refusal."""

import datetime
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchid.features.rights.kinds.subject_access_review import declare
from orchid.kernel.engine.interfaces import Decision, Verdict
from orchid.kernel.engine.request import Request, Target
from orchid.kernel.wire.codec.documents import Undecodable, encode
from orchid.kernel.wire.errors import ApiError, Invalid
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.user import UserInfo

NOW = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
CALLER = UserInfo(username="caller", groups=("dev",))
POD = {"verb": "get", "resource": "pods"}
PATH = {"path": "/x", "verb": "get"}


class Judge:
    """Gives one decision and keeps the question."""

    def __init__(self, decision: Decision | None = None) -> None:
        self._decision = decision or Decision(Verdict.ALLOW, "because")
        self.asked: list[tuple[UserInfo, Target]] = []

    async def authorize(self, user: UserInfo, target: Target) -> Decision:
        self.asked.append((user, target))
        return self._decision


async def review(
    index: int, spec: Any, metadata: Any = None, judge: Judge | None = None
) -> dict[str, Any]:
    """Ask a review by its place in `declare`; the answer as JSON."""
    kind: Any = declare(ORCH, judge or Judge())[index]
    body = json.dumps({"metadata": metadata or {}, "spec": spec}).encode()
    new = kind.decoder.decode(body)[0]
    request = Request(Target("create", namespace="ci"), user=CALLER, now=NOW)
    answer: dict[str, Any] = json.loads(encode(await kind.acts.create(new, request)))
    return answer


SUBJECT, LOCAL, SELF = 0, 1, 2


async def test_the_question_reaches_the_authorizer_as_it_is() -> None:
    """No group is added and nothing is looked up; an empty version means any."""
    judge = Judge()
    spec = {
        "user": "zed",
        "uid": "7",
        "groups": ["g"],
        "extra": {"Scopes": ["a"]},
        "resourceAttributes": POD | {"namespace": "ci", "subresource": "status", "name": "web"},
    }

    answer = await review(SUBJECT, spec, judge=judge)

    user, target = judge.asked[0]
    assert user == UserInfo("zed", "7", ("g",), {"Scopes": ("a",)})
    assert target == Target("get", "", True, "", "*", "pods", "status", "ci", "web", "", "")
    assert answer["status"] == {"allowed": True, "reason": "because"}
    assert answer["spec"]["user"] == "zed"


async def test_a_self_review_asks_for_the_caller() -> None:
    """The review is about the caller, whatever the body contains."""
    judge = Judge()

    await review(SELF, {"nonResourceAttributes": PATH, "user": "admin"}, judge=judge)

    assert judge.asked == [(CALLER, Target("get", "/x"))]


@pytest.mark.parametrize(
    ("decision", "status"),
    [
        (Decision(Verdict.NO_OPINION), {"allowed": False}),
        (
            Decision(Verdict.NO_OPINION, "r", "e"),
            {"allowed": False, "reason": "r", "evaluationError": "e"},
        ),
        (Decision(Verdict.DENY, "no"), {"allowed": False, "denied": True, "reason": "no"}),
    ],
)
async def test_the_answer(decision: Decision, status: dict[str, Any]) -> None:
    """`allowed` is always there, the rest when there is something to say."""
    assert (await review(SELF, {"resourceAttributes": POD}, judge=Judge(decision)))[
        "status"
    ] == status


@pytest.mark.parametrize(
    ("index", "spec", "metadata", "problem"),
    [
        (
            SELF,
            {},
            {},
            "spec.resourceAttributes: Invalid value: null: exactly one of nonResourceAttributes or "
            "resourceAttributes must be specified",
        ),
        (
            SELF,
            {"resourceAttributes": POD, "nonResourceAttributes": PATH},
            {},
            'spec.nonResourceAttributes: Invalid value: {"Path":"/x","Verb":"get"}: cannot be '
            "specified in combination with resourceAttributes",
        ),
        (
            SUBJECT,
            {"resourceAttributes": POD},
            {},
            'spec.user: Invalid value: "": at least one of user or group must be specified',
        ),
        (
            SUBJECT,
            {"resourceAttributes": POD, "user": "u"},
            {"name": "n", "labels": {"a": "b"}},
            'metadata: Invalid value: {"name":"n","labels":{"a":"b"}}: must be empty',
        ),
        (
            LOCAL,
            {"resourceAttributes": POD | {"namespace": "ci"}, "user": "u"},
            {"name": "n", "namespace": "ci"},
            'metadata: Invalid value: {"name":"n","namespace":"ci"}: must be empty except for '
            "namespace",
        ),
        (
            LOCAL,
            {"resourceAttributes": POD | {"namespace": "zzz"}, "user": "u"},
            {"namespace": "ci"},
            'spec.resourceAttributes.namespace: Invalid value: "zzz": must match '
            "metadata.namespace",
        ),
        (
            LOCAL,
            {"resourceAttributes": POD, "user": "u"},
            {"namespace": "ci"},
            'spec.resourceAttributes.namespace: Invalid value: "": must match metadata.namespace',
        ),
        (
            LOCAL,
            {"nonResourceAttributes": PATH, "user": "u"},
            {"namespace": "ci"},
            'spec.nonResourceAttributes: Invalid value: {"Path":"/x","Verb":"get"}: disallowed on '
            "this kind of request",
        ),
        (
            SELF,
            {"resourceAttributes": POD | {"fieldSelector": {}}},
            {},
            "spec.resourceAttributes.fieldSelector.requirements: Required value: when "
            "spec.resourceAttributes.fieldSelector is specified, requirements or rawSelector is "
            "required",
        ),
        (
            SELF,
            {
                "resourceAttributes": POD
                | {
                    "fieldSelector": {
                        "rawSelector": "a=b",
                        "requirements": [{"key": "a", "operator": "Exists"}],
                    }
                }
            },
            {},
            'spec.resourceAttributes.fieldSelector.rawSelector: Invalid value: "a=b": may not '
            "specified at the same time as requirements",
        ),
        (
            SELF,
            {
                "resourceAttributes": POD
                | {"fieldSelector": {"requirements": [{"operator": "In", "values": ["x"]}]}}
            },
            {},
            "spec.resourceAttributes.fieldSelector.requirements[0].key: Required value: must be "
            "specified",
        ),
        (
            SELF,
            {
                "resourceAttributes": POD
                | {"fieldSelector": {"requirements": [{"operator": "NotIn"}]}}
            },
            {},
            "[spec.resourceAttributes.fieldSelector.requirements[0].key: Required value: must be "
            "specified, spec.resourceAttributes.fieldSelector.requirements[0].values: Required "
            "value: must be specified when `operator` is 'In' or 'NotIn']",
        ),
        (
            SELF,
            {
                "resourceAttributes": POD
                | {"labelSelector": {"requirements": [{"key": "a", "operator": "In"}]}}
            },
            {},
            "spec.resourceAttributes.labelSelector.requirements[0].values: Required value: must be "
            "specified when `operator` is 'In' or 'NotIn'",
        ),
        (
            SELF,
            {
                "resourceAttributes": POD
                | {
                    "labelSelector": {
                        "requirements": [{"key": "a", "operator": "Exists", "values": ["x"]}]
                    }
                }
            },
            {},
            "spec.resourceAttributes.labelSelector.requirements[0].values: Forbidden: may not be "
            "specified when `operator` is 'Exists' or 'DoesNotExist'",
        ),
    ],
)
async def test_refusals(index: int, spec: Any, metadata: Any, problem: str) -> None:
    """A 422 without a kind, as clients know it, and the authorizer is not asked."""
    judge = Judge()

    with pytest.raises(Invalid) as caught:
        await review(index, spec, metadata, judge)

    assert caught.value.message == f'.authorization.orch.io "" is invalid: {problem}'
    assert caught.value.details is not None
    assert (caught.value.details.kind, caught.value.details.name) == ("", "")
    assert judge.asked == []


@pytest.mark.parametrize(
    ("attributes", "fields", "labels", "error"),
    [
        ({"fieldSelector": {"rawSelector": "spec.nodeName=n1"}}, "spec.nodeName=n1", "", ""),
        (
            {
                "fieldSelector": {
                    "requirements": [
                        {"key": "a", "operator": "In", "values": ["x,y"]},
                        {"key": "b", "operator": "NotIn", "values": ["z"]},
                    ]
                }
            },
            "a=x\\,y,b!=z",
            "",
            "",
        ),
        (
            {
                "fieldSelector": {
                    "requirements": [
                        {"key": "a", "operator": "In", "values": ["x", "y"]},
                        {"key": "b", "operator": "In", "values": ["z"]},
                    ]
                }
            },
            "b=z",
            "",
            "spec.resourceAttributes.fieldSelector partially ignored due to parse error",
        ),
        (
            {
                "labelSelector": {
                    "requirements": [
                        {"key": "a", "operator": "In", "values": ["x", "y"]},
                        {"key": "b", "operator": "NotIn", "values": ["z"]},
                        {"key": "c", "operator": "Exists"},
                        {"key": "d", "operator": "DoesNotExist"},
                    ]
                }
            },
            "",
            "a in (x,y),b notin (z),c,!d",
            "",
        ),
        (
            {"labelSelector": {"requirements": [{"key": "a", "operator": "Like"}]}},
            "",
            "",
            "spec.resourceAttributes.labelSelector ignored due to parse error",
        ),
        (
            {"labelSelector": {"rawSelector": "a in ("}},
            "",
            "",
            "spec.resourceAttributes.labelSelector ignored due to parse error",
        ),
    ],
)
async def test_selectors(attributes: Any, fields: str, labels: str, error: str) -> None:
    """Selectors reach the authorizer as text; what cannot be read is left out and said."""
    judge = Judge()

    answer = await review(SELF, {"resourceAttributes": POD | attributes}, judge=judge)

    target = judge.asked[0][1]
    assert (target.field_selector, target.label_selector) == (fields, labels)
    assert answer["status"].get("evaluationError", "") == error


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "user",
                    "groups",
                    "extra",
                    "resourceAttributes",
                    "nonResourceAttributes",
                    "verb",
                    "fieldSelector",
                    "labelSelector",
                    "requirements",
                    "rawSelector",
                    "key",
                    "operator",
                    "values",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(index=st.sampled_from([SUBJECT, LOCAL, SELF]), spec=JSON)
async def test_any_body_has_an_answer(index: int, spec: Any) -> None:
    """Whatever is sent, the answer is a review or a clear error."""
    try:
        answer = await review(index, spec)
    except (ApiError, Undecodable):
        return
    assert answer["status"]["allowed"] is True
