"""The steps of a key on the command line: rotate, back and retire.

The server decides whether a step is possible; `--wait` repeats it until then.
"""

import argparse
import contextlib
from datetime import timedelta

from orchid.features.sealing.commands import sealing_key
from orchid.features.token_keys.commands.key_objects import (
    ACTIVE,
    PUBLISHED,
    RETIRED,
    VERIFYING,
    VERSION,
    activation,
    authorities,
    authority_of,
    create,
    group_of,
    is_active,
    number,
    url,
)
from orchid.kernel.terminal import times
from orchid.kernel.terminal.asking import insist
from orchid.kernel.terminal.connection import (
    CommandRefused,
    Json,
    ServerConnection,
    connect,
    path,
    retried,
)
from orchid.kernel.terminal.objects import completed
from orchid.kernel.terminal.older_servers import older_servers
from orchid.kernel.terminal.output import USAGE, Complaint, name_of, print_for_programs, remark, say
from orchid.kernel.terminal.polling import polls
from orchid.kernel.wire.rules.key_names import TOKENS

SEALING = "sealing"
REJECTED, CONFLICT, FORBIDDEN, NOT_FOUND = 422, 409, 403, 404
HOUR = timedelta(hours=1)
BUSY_SECONDS = 30


def name_argument(parser: argparse.ArgumentParser) -> None:
    completed(parser.add_argument("name", metavar="NAME"), "key")


def wait_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--wait",
        type=times.duration_of,
        default=0,
        metavar="25h",
        help="how long to wait until the server allows it (default: not at all)",
    )


def rotate_arguments(parser: argparse.ArgumentParser) -> None:
    what = parser.add_argument(
        "what",
        metavar="NAME",
        nargs="?",
        default=TOKENS,
        help=f"an authority, or {SEALING} (default: {TOKENS})",
    )
    completed(what, "authority")
    hurry_argument(parser)
    wait_argument(parser)
    sealing_key.add_file(parser)


def hurry_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--hurry",
        action="store_true",
        help="have clients renew the certificates of the old key within the next hour",
    )


def rotate_named(arguments: argparse.Namespace) -> int:
    if arguments.hurry and arguments.what in (SEALING, TOKENS):
        raise Complaint("--hurry is for certificates: name an authority", USAGE)
    if arguments.what == SEALING:
        return sealing_key.rotate(arguments)
    authority = "" if arguments.what == TOKENS else arguments.what
    return rotate(arguments, connect(arguments), authority)


def rotate(arguments: argparse.Namespace, server: ServerConnection, authority: str = "") -> int:
    """Have the successor sign: for an authority, or without one for tokens."""
    keys = [key for key in server.items(url(server)) if group_of(key["spec"]) == authority]
    waiting = [key for key in sorted(keys, key=number) if key["spec"]["state"] == PUBLISHED]
    is_new = not waiting
    if waiting:
        successor = name_of(waiting[0])
    elif authority:
        successor = _create_successor(server, authority, keys)
    else:
        raise Complaint(f"no key is Published; {_next_key(server)}")
    done = f"signs certificates of {authority}" if authority else "signs tokens"
    if authority:
        remark_consumers(server, authority)
    try:
        code = _step(arguments, server, successor, ACTIVE, done)
    except CommandRefused as refused:
        if not is_new or arguments.wait or refused.status != REJECTED:
            raise
        return _report_created(arguments, server, successor, refused)
    for key in keys if arguments.hurry else ():
        if key["spec"]["state"] in (ACTIVE, VERIFYING):
            _hurry(server, name_of(key))
    return code


def _report_created(
    arguments: argparse.Namespace, server: ServerConnection, name: str, refused: CommandRefused
) -> int:
    """A key that was just created signs later: that is no failure."""
    remark(f"not yet: {refused}")
    key = server.get(url(server, name))
    hurry = " --hurry" if arguments.hurry else ""
    remark(f"next: orchid ca rotate {key['spec']['authority']}{hurry} --wait 25h")
    print_for_programs(arguments.output, key)
    return 0


def _next_key(server: ServerConnection) -> str:
    """How a key becomes Published: by the controller, unless a server does not know it."""
    older: list[str] = []
    with contextlib.suppress(CommandRefused):  # the caller may not read Leases
        older = older_servers(server, times.now())
    if older:
        return (
            f"{', '.join(older)}: a server of an earlier version still runs. Finish the upgrade "
            "(it counts for a minute after its stop), then try again"
        )
    return "create a SigningKey first (docs/rotation.md)"


def _hurry(server: ServerConnection, name: str) -> None:
    """Move the renewal of all certificates of a key to the next hour."""
    end = f"{times.now() + HOUR:%Y-%m-%dT%H:%M:%SZ}"
    _put(server, name, "renewBy", end)
    remark(f"clients renew the certificates of {name} until {end}")


def _put(server: ServerConnection, name: str, field: str, value: str) -> Json:
    """Set a field of the spec, while the leader may write the same key."""
    for _ in polls(BUSY_SECONDS):
        key = server.get(url(server, name))
        key["spec"][field] = value
        try:
            return server.put(url(server, name), key)
        except CommandRefused as refused:
            if refused.status != CONFLICT:
                raise
    raise CommandRefused(CONFLICT, f"{name} changes all the time; try again")


def _create_successor(server: ServerConnection, authority: str, keys: list[Json]) -> str:
    owner = server.get(authorities(server, authority))
    if owner["spec"].get("signerNames") and not owner["spec"].get("key"):
        raise Complaint(f"{authority}: its keys are files of the servers; see docs/rotation.md")
    signing = max(filter(is_active, keys), key=activation, default=None)
    if signing and signing["spec"].get("pkcs11"):
        text = "its key is in the HSM; orchid key import --authority --pkcs11 adds the next one"
        raise Complaint(f"{authority}: {text}")
    algorithm = (owner["spec"].get("key") or {}).get("algorithm")
    if not algorithm:
        text = (
            "the server does not create its keys; orchid key import --authority adds the next one"
        )
        raise Complaint(f"{authority}: {text}")
    spec = {"authority": authority, "algorithm": algorithm}
    name = name_of(create(server, spec))
    remark(f"created {name}")
    return name


def back(arguments: argparse.Namespace) -> int:
    arguments.wait, server = 0, connect(arguments)
    if server.get(url(server, arguments.name))["spec"]["state"] == PUBLISHED:
        raise Complaint(f"{arguments.name} is {PUBLISHED}: orchid key rotate has it sign")
    return _step(arguments, server, arguments.name, ACTIVE, "signs again")


def retire_arguments(parser: argparse.ArgumentParser) -> None:
    name_argument(parser)
    wait_argument(parser)
    sealing_key.add_file(parser)


def retire(arguments: argparse.Namespace) -> int:
    kind, slash, name = arguments.name.partition("/")
    if kind == SEALING and slash:
        return sealing_key.retire(arguments, name)
    insist(
        arguments, f"Retire {arguments.name}? It never signs again, and what it signed is refused."
    )
    done, server = "is retired; what it signed is refused", connect(arguments)
    if authority := authority_of(server.get(url(server, arguments.name))):
        remark_consumers(server, authority)
    return _step(arguments, server, arguments.name, RETIRED, done)


def remark_consumers(server: ServerConnection, authority: str) -> None:
    """Print how many known clients of the authority's bundle have not fetched it yet."""
    bundle = path("apis", server.naming.identity, VERSION, "publishedbundles", authority)
    try:
        consumers = (server.get(bundle).get("status") or {}).get("consumers") or {}
    except CommandRefused as refused:
        if refused.status not in (FORBIDDEN, NOT_FOUND):
            raise
        return
    if behind := consumers.get("behind"):
        longest = [consumer["name"] for consumer in consumers.get("longest") or ()][:1]
        named = f", the longest {longest[0]}" if longest else ""
        remark(f"{behind} of {behind + consumers.get('current', 0)} consumers are behind{named}")


def _step(
    arguments: argparse.Namespace, server: ServerConnection, name: str, state: str, done: str
) -> int:
    """Change the state of a key, once the server allows it."""
    changed = retried(lambda: _put(server, name, "state", state), arguments.wait, {REJECTED})
    if not print_for_programs(arguments.output, changed):
        say(f"{name} {done}")
    return 0
