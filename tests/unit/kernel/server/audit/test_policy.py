"""The audit policy: which rule decides, its level, and the errors of a bad file."""

from pathlib import Path

import pytest

from orchid.kernel.engine.request import Target
from orchid.kernel.server.audit.policy import AuditLevel, BadPolicy, Policy, load, parse
from orchid.kernel.wire.struct import replace
from orchid.kernel.wire.user import UserInfo

ALICE = UserInfo(username="alice", groups=("dev", "system:authenticated"))
GET_POD = Target("get", "/", True, "", "v1", "pods", "", "ns", "p")
HEALTH = Target("get", "/healthz/ping")


def policy(rules: str, rest: str = "") -> Policy:
    text = f"apiVersion: audit.orch.io/v1\nkind: Policy\n{rest}\nrules: {rules}\n"
    return parse(text.encode())


@pytest.mark.parametrize(
    ("members", "target", "fits"),
    [
        ("", GET_POD, True),
        ("", HEALTH, True),
        ("users: [alice]", GET_POD, True),
        ("users: [bob]", GET_POD, False),
        ("userGroups: [ops, dev]", GET_POD, True),
        ("userGroups: [ops]", GET_POD, False),
        ("verbs: [get, list]", GET_POD, True),
        ("verbs: [delete]", GET_POD, False),
        ("namespaces: [ns]", GET_POD, True),
        ("namespaces: [other]", GET_POD, False),
        ('namespaces: [""]', replace(GET_POD, namespace=""), True),
        ('namespaces: [""]', HEALTH, False),
        ("resources: [{}]", GET_POD, True),
        ('resources: [{group: "", resources: [pods]}]', GET_POD, True),
        ('resources: [{group: "", resources: [pods]}]', replace(GET_POD, subresource="log"), False),
        ('resources: [{group: "", resources: [pods/log]}]', GET_POD, False),
        ("resources: [{resources: [pods/log]}]", replace(GET_POD, subresource="log"), True),
        ("resources: [{resources: [pods/*]}]", replace(GET_POD, subresource="log"), True),
        ("resources: [{resources: [nodes/*]}]", replace(GET_POD, subresource="log"), False),
        ("resources: [{resources: ['*/log']}]", replace(GET_POD, subresource="log"), True),
        ("resources: [{resources: ['*/log']}]", GET_POD, False),
        ("resources: [{resources: ['*']}]", replace(GET_POD, subresource="log"), True),
        ("resources: [{group: apps}]", GET_POD, False),
        ("resources: [{group: '*'}]", replace(GET_POD, group="apps"), True),
        ("resources: [{resources: [pods], resourceNames: [p]}]", GET_POD, True),
        ("resources: [{resources: [pods], resourceNames: [q]}]", GET_POD, False),
        ("resources: [{}]", HEALTH, False),
        ("nonResourceURLs: [/healthz/*]", HEALTH, True),
        ("nonResourceURLs: [/healthz]", HEALTH, False),
        ("nonResourceURLs: ['*']", HEALTH, True),
        ("nonResourceURLs: ['*']", GET_POD, False),
        ("users: [alice], verbs: [delete]", GET_POD, False),
    ],
)
def test_rule_fits_when_every_member_does(members: str, target: Target, fits: bool) -> None:
    """All members of a rule must fit, and one that is left out fits everything."""
    found = policy(f"[{{level: Metadata, {members}}}]").plan(ALICE, target)

    assert (found.level is AuditLevel.METADATA) is fits


def test_first_rule_that_fits_decides_and_none_means_nothing() -> None:
    """Rules are looked at in order; a request that no rule fits is not recorded."""
    rules = policy("[{level: None, users: [alice]}, {level: Request, verbs: [get]}]")

    assert rules.plan(ALICE, GET_POD).level is AuditLevel.NONE
    assert rules.plan(UserInfo(username="bob"), GET_POD).level is AuditLevel.REQUEST
    assert rules.plan(ALICE, replace(GET_POD, verb="list")).level is AuditLevel.NONE


def test_nobody_fits_no_rule_for_users() -> None:
    """A caller who was not authenticated has neither a name nor groups."""
    rules = policy("[{level: Metadata, users: ['']}, {level: Metadata, userGroups: [dev]}]")

    assert rules.plan(None, GET_POD).level is AuditLevel.NONE


def test_stages_are_united_and_managed_fields_are_overridden() -> None:
    """Stages omitted above and in a rule add up; a rule has the last word on managed fields."""
    rules = policy(
        "[{level: Request, omitStages: [Panic], omitManagedFields: false, users: [alice]},"
        " {level: Request}]",
        "omitStages: [RequestReceived]\nomitManagedFields: true",
    )

    first, second = rules.plan(ALICE, GET_POD), rules.plan(None, GET_POD)

    assert first.omitted_stages == {"RequestReceived", "Panic"}
    assert not first.omits_managed_fields
    assert second.omitted_stages == {"RequestReceived"}
    assert second.omits_managed_fields


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rules: [", "yaml"),
        ("kind: Policy\nkind: Policy", "occurs twice"),
        ("[]", "must be a mapping, not a list"),
        ("apiVersion: audit.orch.io/v1\nkind: Policy", "missing required field `rules`"),
        ("apiVersion: audit.orch.io/v1\nkind: Policy\nrules: []", "at least one"),
        ("apiVersion: audit.orch.io/v2\nkind: Policy\nrules: [{level: None}]", "is expected"),
        ("apiVersion: audit.orch.io/v1\nkind: Polic\nrules: [{level: None}]", "is expected"),
        ("{level: Everything}", "rules[0].level: 'Everything' is none of"),
        ("{level: None, user: [a]}", "unknown field `user`"),
        ("{level: None, omitStages: [Begin]}", "rules[0].omitStages: 'Begin' is none of"),
        ("{level: None, nonResourceURLs: [/a], namespaces: [b]}", "not for both"),
        ("{level: None, nonResourceURLs: [a]}", "begin with '/'"),
        ("{level: None, nonResourceURLs: [/a*b]}", "'*' only at its end"),
        ("{level: None, resources: [{resourceNames: [a]}]}", "resources are needed too"),
        ("{level: None, resources: [{group: apps/v1}]}", "without its version"),
        ("{level: 3}", "rules[0].level: must be text"),
    ],
)
def test_a_bad_policy_is_reported_in_a_sentence(text: str, message: str) -> None:
    """Every mistake in the file is one clear message that says where it is."""
    if text.startswith("{"):
        text = f"apiVersion: audit.orch.io/v1\nkind: Policy\nrules: [{text}]"

    with pytest.raises(BadPolicy) as problem:
        parse(text.encode())

    assert message in str(problem.value)


def test_a_missing_file_is_reported_with_its_name(tmp_path: Path) -> None:
    """A file that cannot be read is named, with the reason."""
    with pytest.raises(BadPolicy, match=r"policy\.yaml: No such file"):
        load(tmp_path / "policy.yaml")
