"""Policy rules: what one allows, what one covers, and how a refusal prints them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchid.features.rights.rules import (
    MOST_PARTS,
    allows_path,
    allows_resource,
    broken_down,
    covers,
    missing,
    printed,
)
from orchid.kernel.wire.policy_rules import FULL_AUTHORITY, PolicyRule
from tests.unit.features.rights.policy_world import rule, urls

WORDS = st.sampled_from(["*", "get", "list", "pods", "pods/status", "*/status", "secrets"])
TUPLES = st.lists(WORDS, max_size=3).map(tuple)
RULES = st.builds(
    PolicyRule, verbs=TUPLES, api_groups=TUPLES, resources=TUPLES, resource_names=TUPLES
) | st.builds(PolicyRule, verbs=TUPLES, non_resource_urls=TUPLES)


@pytest.mark.parametrize(
    ("resources", "resource", "subresource", "expected"),
    [
        ("pods", "pods", "", True),
        ("pods", "pods", "status", False),
        ("pods/status", "pods", "status", True),
        ("pods/*", "pods", "status", False),
        ("*/status", "pods", "status", True),
        ("*/status", "pods", "", False),
        ("*", "pods", "status", True),
        ("*/*", "pods", "", False),
        ("*/*", "pods", "status", False),
    ],
)
def test_resources_match_as_the_reference_matches_them(
    resources: str, resource: str, subresource: str, expected: bool
) -> None:
    """A resource does not include its subresources; only `*` and `*/sub` are special."""
    assert allows_resource(rule("get", resources), "get", "", resource, subresource) is expected


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("*", "/anything", True),
        ("/healthz", "/healthz", True),
        ("/healthz", "/healthz/x", False),
        ("/healthz/*", "/healthz/x", True),
        ("/healthz/*", "/healthz", False),
        ("/he*", "/healthz", True),
        ("/*/x", "/a/x", False),
    ],
)
def test_paths_match_exactly_or_by_a_star_at_the_end(
    pattern: str, path: str, expected: bool
) -> None:
    """A star elsewhere than at the end is an ordinary character."""
    assert allows_path(urls("get", pattern), "get", path) is expected


def test_missing_rules_are_gathered_by_resource_with_their_verbs_in_order() -> None:
    """Parts that differ in the verb alone come back as one rule."""
    held = [rule("get", "pods secrets")]

    lacking = missing(held, [rule("list get watch", "pods secrets")])

    assert lacking == (rule("list watch", "pods"), rule("list watch", "secrets"))


def test_paths_are_missing_one_by_one() -> None:
    """Every verb on every path is a separate rule, as in Kubernetes."""
    lacking = missing([], [urls("get post", "/a")])

    assert lacking == (urls("get", "/a"), urls("post", "/a"))


@pytest.mark.parametrize(
    ("own", "wanted", "expected"),
    [
        (rule("*", "*", "*"), rule("get", "pods"), True),
        (rule("get", "pods"), rule("*", "pods"), False),
        (rule("get", "pods", "apps"), rule("get", "pods"), False),
        (rule("get", "pods"), rule("get", "pods", "apps"), False),
        (rule("get", "*/status"), rule("get", "pods/status"), True),
        (rule("get", "*/status"), rule("get", "pods"), False),
        (rule("get", "*/*"), rule("get", "pods"), False),
        (rule("get", "*/*"), rule("get", "pods/status"), False),
        (rule("get", "*/*"), rule("get", "*"), False),
        (rule("get", "*/"), rule("get", "pods"), False),
        (rule("get", "pods/*"), rule("get", "pods/status"), False),
        (rule("get", "pods", names=["a"]), rule("get", "pods"), False),
        (rule("get", "pods"), rule("get", "pods", names=["a"]), True),
        (rule("get", "pods", names=["a", "b"]), rule("get", "pods", names=["b"]), True),
        (urls("get", "/a*"), urls("get", "/abc"), True),
        (urls("get", "/abc"), urls("get", "/a*"), False),
        (rule("*", "*", "*"), urls("get", "/abc"), False),
    ],
)
def test_coverage(own: PolicyRule, wanted: PolicyRule, expected: bool) -> None:
    """One rule covers another only if it gives everything the other gives."""
    assert covers(own, wanted) is expected


@given(RULES)
def test_full_authority_lacks_nothing(wanted: PolicyRule) -> None:
    """A user with all rights may grant all rights."""
    assert missing(FULL_AUTHORITY, [wanted]) == ()


@given(st.lists(RULES, max_size=4), RULES)
def test_missing_is_what_no_held_rule_covers_part_by_part(
    held: list[PolicyRule], wanted: PolicyRule
) -> None:
    """The answer, broken down again, is exactly the uncovered parts."""
    uncovered = {p for p in broken_down(wanted) if not any(covers(own, p) for own in held)}

    lacking = missing(held, [wanted])

    assert {part for found in lacking for part in broken_down(found)} == uncovered


def test_a_rule_of_a_billion_parts_is_refused_without_counting_them() -> None:
    """A few kilobytes cannot keep the server busy."""
    many = tuple(f"w{i}" for i in range(1000))
    wanted = PolicyRule(verbs=many, api_groups=many, resources=many)

    assert len(many) ** 3 > MOST_PARTS
    assert missing([rule("get", "pods")], [wanted]) == (wanted,)
    assert missing(FULL_AUTHORITY, [wanted]) == ()


def test_many_rules_are_refused_without_counting_their_parts() -> None:
    """The limit is one for all wanted rules: each of them may be just below it.

    Held is every part, but not as a rule that covers one of the wanted; so what is not counted
    comes out as missing.
    """
    verbs = tuple(f"v{i}" for i in range(MOST_PARTS // 2))
    held = [PolicyRule(verbs=verbs, api_groups=("",), resources=(one,)) for one in ("a", "b")]
    wanted = [
        PolicyRule(verbs=verbs, api_groups=("",), resources=("a", "b"), resource_names=names)
        for names in ((), ("x",))
    ]

    assert missing(held, wanted[:1]) == ()
    assert missing(held, wanted[1:]) == ()
    assert missing(held, wanted) == (wanted[1],)


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (
            rule("list get", "secrets"),
            '{APIGroups:[""], Resources:["secrets"], Verbs:["list" "get"]}',
        ),
        (
            rule("get", "deployments", "apps", ["n1"]),
            '{APIGroups:["apps"], Resources:["deployments"], ResourceNames:["n1"], Verbs:["get"]}',
        ),
        (urls("get", "/foo"), '{NonResourceURLs:["/foo"], Verbs:["get"]}'),
    ],
)
def test_a_rule_prints_on_one_line(shown: PolicyRule, text: str) -> None:
    """Refusals show rules in the form clients know."""
    assert printed(shown) == text
