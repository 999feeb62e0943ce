"""`orchid rewrite`: write objects again unchanged, encrypted with the newest key.

    orchid rewrite                              all secrets
    orchid rewrite secrets configmaps           these too, where the configuration names them

The leader does the same by itself after a change of --encryption-provider-config, more slowly; this
is for those who cannot wait. Objects that are already encrypted with the current key are not
written; so it can be interrupted and repeated at any time.
"""

import argparse

from orchid.kernel.terminal.connection import (
    CONFLICT,
    NOT_FOUND,
    CommandRefused,
    Json,
    ServerConnection,
    add_flags,
    connect,
    path,
)
from orchid.kernel.terminal.output import USAGE, Complaint, say
from orchid.kernel.terminal.progress import Bar

GROUPS = {"secrets": ("api", "v1"), "configmaps": ("api", "v1"), "serviceaccounts": ("api", "v1")}
TRIES = 5


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "resources",
        nargs="*",
        default=["secrets"],
        metavar="RESOURCE",
        help=f"which objects: {', '.join(GROUPS)} (default: secrets)",
    )
    add_flags(parser, forms=())


def run(arguments: argparse.Namespace) -> int:
    unknown = [name for name in arguments.resources if name not in GROUPS]
    if unknown:
        raise Complaint(f"{unknown[0]!r} is none of {', '.join(GROUPS)}", USAGE)
    server = connect(arguments)
    with Bar() as bar:
        for resource in arguments.resources:
            objects = list(server.items(path(*GROUPS[resource], resource)))
            written = 0
            for done, each in enumerate(objects, 1):
                written += _rewritten(server, resource, each)
                bar.show(resource, done, len(objects))
            say(f"{resource}: {len(objects)} checked, {written} written again")
    return 0


def _rewritten(server: ServerConnection, resource: str, object_: Json) -> bool:
    """Write one object unchanged; return whether the server had something to write."""
    meta = object_["metadata"]
    url = path(*GROUPS[resource], "namespaces", meta["namespace"], resource, meta["name"])
    for _ in range(TRIES):
        try:
            current = server.get(url)
            after: Json = server.put(url, current)
        except CommandRefused as refusal:
            if refusal.status == NOT_FOUND:
                return False
            if refusal.status != CONFLICT:
                raise
        else:
            before: str = current["metadata"]["resourceVersion"]
            return bool(after["metadata"]["resourceVersion"] != before)
    raise Complaint(f"{url} changes all the time; try again")
