"""Every kind that the server stores, and every target of revocations, is attacked."""

from orchid.assembly.kinds import stored_kinds
from orchid.features.revocation.kinds.credential_revocation import CredentialRevocationSpec
from orchid.kernel.wire.naming import ORCH
from tests.adversary.invariants.revocations import TARGETS
from tests.adversary.kinds import KINDS, LEFT_OUT


def test_every_stored_kind_is_attacked_or_left_out_for_a_reason() -> None:
    """A new kind is one line in tests/adversary/kinds.py."""
    stored = {kind.plural: kind for kind in stored_kinds(ORCH)}

    assert sorted(stored) == sorted([*KINDS, *LEFT_OUT])
    for name, kind in KINDS.items():
        assert kind.kind == stored[name].type.__name__
        assert kind.group == stored[name].group
        assert kind.version in (stored[name].version, *stored[name].versions)
        assert kind.is_namespaced == (stored[name].scope.name == "NAMESPACED")


def test_every_target_of_a_revocation_is_understood() -> None:
    """A new target is drawn and judged in the commit that adds it."""
    other = {"reason", "message", "cluster", "cluster_uid"}

    assert set(CredentialRevocationSpec.__struct_fields__) - other == set(TARGETS)
