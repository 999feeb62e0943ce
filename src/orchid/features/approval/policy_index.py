"""PolicyIndex: finds, among many policies, those that select a case.

Start with `candidates`. A policy is indexed by the fixed text in its selectors: a whole name, the
prefix or suffix of a pattern with a star, or the text between two stars. A lookup tries the name
itself, and its prefixes and suffixes of the lengths in the index. Texts between stars are searched
in all names of a user together. So a request needs a few lookups, even with a thousand policies for
a thousand teams, or a user in a thousand groups.
"""

from collections import Counter
from collections.abc import Iterable, Iterator

from orchid.features.approval.compiled import ACCOUNT_PREFIX, CompiledPolicy
from orchid.features.approval.patterns import STAR
from orchid.kernel.wire.user import UserInfo

WHOLE, BEGINNING, END, INSIDE = "whole", "beginning", "end", "inside"
MOST_KEYS = 1024  # keys of one policy; one with more is found by its signers alone
Key = tuple[str, str, str]  # type of name, part of it, and text
ANY: Key = ("", "", "")


class PolicyIndex:
    """Policies by name, and by selection."""

    def __init__(self) -> None:
        self._policies: dict[str, CompiledPolicy] = {}
        self._by_signer: dict[Key, dict[Key, dict[str, CompiledPolicy]]] = {}
        self._sizes: Counter[tuple[str, str, int]] = Counter()
        self._indexed: Counter[Key] = Counter()
        self._inside: dict[Key, None] = {}  # the texts between two stars

    def __len__(self) -> int:
        return len(self._policies)

    def __iter__(self) -> Iterator[CompiledPolicy]:
        return iter(self._policies.values())

    def put(self, policy: CompiledPolicy) -> None:
        self.remove(policy.name)
        self._policies[policy.name] = policy
        signers, requesters = _index_keys(policy)
        for signer in signers:
            for requester in requesters:
                bucket = self._by_signer.setdefault(signer, {}).setdefault(requester, {})
                bucket[policy.name] = policy
        self._sizes.update(map(_size, signers | requesters))
        self._indexed.update(signers | requesters)
        self._inside.update((key, None) for key in signers | requesters if key[1] == INSIDE)

    def remove(self, name: str) -> None:
        old = self._policies.pop(name, None)
        if old is None:
            return
        signers, requesters = _index_keys(old)
        for signer in signers:
            for requester in requesters:
                self._clear(signer, requester, name)
        self._sizes -= Counter(map(_size, signers | requesters))
        self._indexed -= Counter(signers | requesters)
        for key in (signers | requesters) & self._inside.keys() - self._indexed.keys():
            del self._inside[key]

    def candidates(self, signer_name: str, user: UserInfo) -> list[CompiledPolicy]:
        """The policies that may select such a case, sorted by name."""
        requesters = [ANY, *self._keys("user", user.username), *self._keys("group", *user.groups)]
        policies: dict[str, CompiledPolicy] = {}
        for signer in (ANY, *self._keys("signer", signer_name)):
            by_requester = self._by_signer.get(signer)
            if by_requester is not None:
                for requester in requesters:
                    policies.update(by_requester.get(requester, ()))
        matches = (policy for policy in policies.values() if policy.selects(signer_name, user))
        return sorted(matches, key=lambda policy: policy.name)

    def _keys(self, sort: str, *names: str) -> Iterator[Key]:
        """The index keys of every policy that may select one of these names."""
        indexed = self._indexed
        tried = [(sort, WHOLE, name) for name in names]
        for kind, part, size in self._sizes:
            if kind == sort and part == BEGINNING:
                tried += [(sort, part, name[:size]) for name in names]
            elif kind == sort and part == END:
                tried += [(sort, part, name[-size:]) for name in names]
        yield from (key for key in tried if key in indexed)
        text = "\n".join(names)
        for key in self._inside:
            if key[0] == sort and key[2] in text:
                yield key

    def _clear(self, signer: Key, requester: Key, name: str) -> None:
        by_requester = self._by_signer[signer]
        del by_requester[requester][name]
        if not by_requester[requester]:
            del by_requester[requester]
        if not by_requester:
            del self._by_signer[signer]


def _index_keys(policy: CompiledPolicy) -> tuple[set[Key], set[Key]]:
    """The index keys of a policy: signers and requesters."""
    signers, requesters = _signer_keys(policy), _requester_keys(policy)
    few = len(signers) * len(requesters) <= MOST_KEYS
    return signers, requesters if few else {ANY}


def _signer_keys(policy: CompiledPolicy) -> set[Key]:
    return _keys_of("signer", policy.spec.signer_names) or {ANY}


def _requester_keys(policy: CompiledPolicy) -> set[Key]:
    asked = policy.spec.requesters
    accounts = (ACCOUNT_PREFIX + account.replace("/", ":", 1) for account in asked.service_accounts)
    users = _keys_of("user", (*asked.users, *accounts))
    return users | _keys_of("group", asked.groups) or {ANY}


def _keys_of(sort: str, patterns: Iterable[str]) -> set[Key]:
    return {_key(sort, pattern) for pattern in patterns}


def _key(sort: str, pattern: str) -> Key:
    if STAR not in pattern:
        return sort, WHOLE, pattern
    beginning, *between, end = pattern.split(STAR)
    if beginning:
        return sort, BEGINNING, beginning
    if end:
        return sort, END, end
    inside = max(between, key=len, default="")
    return (sort, INSIDE, inside) if inside else ANY


def _size(key: Key) -> tuple[str, str, int]:
    sort, part, text = key
    return sort, part, len(text)
