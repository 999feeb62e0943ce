"""The rights of the users are partial, and the model says what the rules say."""

import random

import pytest

from tests.adversary.kinds import HOME, IDENTITY, KINDS
from tests.adversary.rights import READ, TEAM, USERS, WRITE, Rights, Rule, drawn, roles

SEEDS = 50


@pytest.mark.parametrize("seed", range(SEEDS))
def test_nobody_has_everything(seed: int) -> None:
    """No stars, no system:masters, and no user with every verb on every kind."""
    rights = drawn(random.Random(seed))

    for user in USERS:
        rules = rights.rules[user]
        assert all("*" not in (*rule.verbs, rule.resource, rule.group) for rule in rules)
        special = {verb for rule in rules if rule.resource == "signers" for verb in rule.verbs}
        kinds = {rule.resource for rule in rules if {*READ, *WRITE} <= set(rule.verbs)}
        assert len(kinds) < len(KINDS) - 1 or len(special) < 4
    subjects = [document.get("subjects", []) for _, document in roles(rights)]
    assert all(one["kind"] == "User" for each in subjects for one in each)


def test_a_rule_counts_for_its_verb_resource_names_and_namespace() -> None:
    """Each part of a rule can refuse."""
    rule = Rule(("get",), "", "secrets", ("ca",), TEAM)
    rights = Rights({"alice": (rule, Rule(("patch",), IDENTITY, "signingkeys/status"))})

    assert rights.may("alice", "get", "secrets", "ca", TEAM)
    assert not rights.may("bob", "get", "secrets", "ca", TEAM)
    assert not rights.may("alice", "list", "secrets", "ca", TEAM)
    assert not rights.may("alice", "get", "configmaps", "ca", TEAM)
    assert not rights.may("alice", "get", "secrets", "other", TEAM)
    assert not rights.may("alice", "get", "secrets", "ca", HOME)
    assert rights.may("alice", "patch", "signingkeys/status")
    assert not rights.may("alice", "patch", "signingkeys")


def test_the_same_seed_gives_the_same_rights() -> None:
    """Otherwise a seed would repeat nothing."""
    assert drawn(random.Random(7)).rules == drawn(random.Random(7)).rules
    assert drawn(random.Random(7)).rules != drawn(random.Random(8)).rules
