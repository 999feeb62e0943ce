"""SigningKeys as the commands of `orchid key` read and create them, and their columns."""

from orchid.kernel.terminal import times
from orchid.kernel.terminal.connection import Json, ServerConnection, path
from orchid.kernel.terminal.objects import ListColumn
from orchid.kernel.terminal.output import Cell, name_of
from orchid.kernel.wire.rules.key_names import CLUSTERS, TOKENS, next_name, number_of

KIND, VERSION = "SigningKey", "v1beta1"
PUBLISHED, ACTIVE, VERIFYING, RETIRED = "Published", "Active", "Verifying", "Retired"


def create(server: ServerConnection, spec: Json) -> Json:
    """Create a key under the next name."""
    keys = {name_of(record): group_of(record["spec"]) for record in server.items(url(server))}
    group = group_of(spec)
    taken = {name_of(record) for record in server.items(authorities(server))} if group else set()
    name = next_name(keys, group, taken)
    return server.post(
        url(server),
        {
            "apiVersion": f"{server.naming.identity}/{VERSION}",
            "kind": KIND,
            "metadata": {"name": name},
            "spec": spec,
        },
    )


def url(server: ServerConnection, *parts: str) -> str:
    return path("apis", server.naming.identity, VERSION, "signingkeys", *parts)


def authorities(server: ServerConnection, *parts: str) -> str:
    return path("apis", server.naming.identity, VERSION, "certificateauthorities", *parts)


def authority_of(key: Json) -> str:
    return str(key["spec"].get("authority") or "")


def group_of(spec: Json) -> str:
    """The keys of which one signs: of an authority, or of a cluster; empty for token keys."""
    cluster = spec.get("cluster")
    return f"{CLUSTERS}{cluster}" if cluster else str(spec.get("authority") or "")


def purpose(key: Json) -> str:
    return group_of(key["spec"]) or TOKENS


def number(key: Json) -> int:
    return number_of(name_of(key))


def is_active(key: Json) -> bool:
    return bool(key["spec"]["state"] == ACTIVE)


def activation(key: Json) -> str:
    return str(((key.get("status") or {}).get("times") or {}).get("active", ""))


def order(key: Json) -> tuple[str, int]:
    return group_of(key["spec"]), number(key)


def state_cell(key: Json) -> Cell:
    state = str(key["spec"]["state"])
    conditions: list[Json] = (key.get("status") or {}).get("conditions") or []
    is_lost = any(condition["reason"] == "KeyLost" for condition in conditions)
    if is_lost:
        return Cell(f"{state}, private key lost", "bad")
    return Cell(state, {ACTIVE: "good", PUBLISHED: "waiting"}.get(state, ""))


def _live(key: Json) -> int:
    return int(((key.get("status") or {}).get("dependents") or {}).get("live", 0))


def _until(key: Json) -> str:
    dependents = (key.get("status") or {}).get("dependents") or {}
    if dependents.get("secrets"):
        return "never"
    ends = [times.parse(dependents.get(word)) for word in ("end", "unknownUntil")]
    last = max((end for end in ends if end is not None), default=None)
    return times.until(last) if last is not None and last > times.now() else "-"


COLUMNS = (
    ListColumn("NAME", name_of),
    ListColumn("FOR", purpose),
    ListColumn("STATE", state_cell),
    ListColumn("ALGORITHM", lambda one: (one.get("status") or {}).get("algorithm", "")),
    ListColumn("LIVE", _live),
    ListColumn("UNTIL", _until),
    ListColumn("KEY ID", lambda one: (one.get("status") or {}).get("keyID", ""), is_wide=True),
)
