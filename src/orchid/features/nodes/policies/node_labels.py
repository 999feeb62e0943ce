"""Labels that a node may not set on itself: those that select trusted nodes for workloads.

Labels outside of the product's domain are allowed, those of `node-restriction` never; of the others
a node may set those that describe it. Start with `NodeLabels.forbidden`.
"""

from orchid.kernel.wire.naming import Naming

# Labels of the product's domain, by subdomain, that describe a node.
KNOWN_NODE_LABELS = {
    "": ("hostname", "os", "arch"),
    "topology.": ("zone", "region"),
    "failure-domain.beta.": ("zone", "region"),
    "beta.": ("instance-type", "os", "arch"),
}


class NodeLabels:
    def __init__(self, naming: Naming) -> None:
        domain = naming.domain
        self._reserved = f"node-restriction.{domain}"
        self._domains = (domain, naming.group_domain)
        self._own = (f"{naming.agent}.{domain}", f"node.{domain}")
        self._allowed = frozenset(
            f"{prefix}{domain}/{word}"
            for prefix, words in KNOWN_NODE_LABELS.items()
            for word in words
        )

    def forbidden(self, new: dict[str, str], old: dict[str, str]) -> list[str]:
        changed = (key for key in new.keys() | old.keys() if new.get(key) != old.get(key))
        return sorted(key for key in changed if self._is_forbidden(key))

    def _is_forbidden(self, key: str) -> bool:
        space = key.rpartition("/")[0]
        if is_within(space, self._reserved):
            return True
        if not any(is_within(space, domain) for domain in self._domains):
            return False
        return key not in self._allowed and not any(is_within(space, own) for own in self._own)


def is_within(space: str, domain: str) -> bool:
    return space == domain or space.endswith(f".{domain}")
