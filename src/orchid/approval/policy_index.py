"""PolicyIndex: of many policies, quickly those that may select a case.

Start with `candidates`. A policy stands under every pair of a signer and a requester that it names
plainly; what it names by a pattern stands under "any" and is matched when asked. A thousand
policies for a thousand teams cost a request a few look-ups.
"""

from collections.abc import Iterator

from orchid.approval.compiled import ACCOUNT_PREFIX, CompiledPolicy
from orchid.approval.patterns import STAR
from orchid.approval.terms import ApprovalPolicySpec
from orchid.wire.user import UserInfo

Key = tuple[str, str]  # what sort of name, and the name
ANY: Key = ("any", "")


class PolicyIndex:
    """Policies by name, and by what they select."""

    def __init__(self) -> None:
        self._policies: dict[str, CompiledPolicy] = {}
        self._places: dict[tuple[Key, Key], dict[str, CompiledPolicy]] = {}

    def __len__(self) -> int:
        return len(self._policies)

    def __iter__(self) -> Iterator[CompiledPolicy]:
        return iter(self._policies.values())

    def put(self, policy: CompiledPolicy) -> None:
        self.remove(policy.name)
        self._policies[policy.name] = policy
        for place in _places(policy.spec):
            self._places.setdefault(place, {})[policy.name] = policy

    def remove(self, name: str) -> None:
        old = self._policies.pop(name, None)
        if old is None:
            return
        for place in _places(old.spec):
            there = self._places[place]
            del there[name]
            if not there:
                del self._places[place]

    def candidates(self, signer_name: str, user: UserInfo) -> list[CompiledPolicy]:
        """Those that select such a case, by name."""
        domain = signer_name.partition("/")[0]
        requesters = (ANY, ("user", user.username), *(("group", group) for group in user.groups))
        found: dict[str, CompiledPolicy] = {}
        for signer in (ANY, ("signer", signer_name), ("domain", domain)):
            for requester in requesters:
                found.update(self._places.get((signer, requester), {}))
        chosen = (policy for policy in found.values() if not policy.selection(signer_name, user))
        return sorted(chosen, key=lambda policy: policy.name)


def _places(spec: ApprovalPolicySpec) -> set[tuple[Key, Key]]:
    signers = {_signer_key(pattern) for pattern in spec.signer_names} or {ANY}
    requesters = set(_requester_keys(spec)) or {ANY}
    return {(signer, requester) for signer in signers for requester in requesters}


def _signer_key(pattern: str) -> Key:
    if STAR not in pattern:
        return "signer", pattern
    domain, slash, _ = pattern.partition("/")
    return ("domain", domain) if slash and STAR not in domain else ANY


def _requester_keys(spec: ApprovalPolicySpec) -> Iterator[Key]:
    asked = spec.requesters
    for user in asked.users:
        yield ANY if STAR in user else ("user", user)
    for group in asked.groups:
        yield ANY if STAR in group else ("group", group)
    for account in asked.service_accounts:
        name = ACCOUNT_PREFIX + account.replace("/", ":", 1)
        yield ANY if STAR in account else ("user", name)
