"""`orchid key`: the keys that sign tokens and certificates, and those that seal stored values.

    orchid key list                      the keys, their states, and what depends on each
    orchid key show tokens-1             one key, with the reasons that block its next step
    orchid key rotate --wait 25h         have the successor sign, as soon as the server allows it
    orchid key rotate web --wait 25h     the same for the authority web; with --hurry, clients
                                         renew the certificates of the old key within an hour
    orchid key back tokens-1             sign with the previous key again
    orchid key retire tokens-1           refuse its tokens; rejected while something depends on it
    orchid key import --secret pki/key   import a private key; with --authority web the next key of
                                         that authority, also with --pkcs11 LABEL one of the HSM
    orchid key import --cluster prod --public FILE
                                         import a public key of a cluster, which verifies no token
                                         of Orchid's own accounts
    orchid key new FILE                  make a key file, for servers whose keys are files
    orchid key show sealing              the sealing keys, and how many values depend on each
    orchid key rotate sealing            add a sealing key to the file of a server
    orchid key retire sealing/key1       remove one from it; rejected while values depend on it

The server decides whether a step is possible, and every reason is printed. docs/rotation.md
explains the states. Servers whose token keys are files have no such objects: `list` then shows the
published keys. If an authority has no successor yet, `rotate` creates one.
"""

import argparse
import contextlib
import shlex
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from orchid.features.sealing.commands import sealing_key
from orchid.kernel.terminal import times
from orchid.kernel.terminal.asking import asks, insist
from orchid.kernel.terminal.connection import (
    CommandRefused,
    Json,
    ServerConnection,
    add_flags,
    connect,
    path,
    retried,
)
from orchid.kernel.terminal.flags import write_secret
from orchid.kernel.terminal.objects import (
    LIST_FORMS,
    SHOW_FORMS,
    ListColumn,
    add_watch,
    completed,
    show_list,
)
from orchid.kernel.terminal.older_servers import older_servers
from orchid.kernel.terminal.output import (
    USAGE,
    Cell,
    Complaint,
    facts,
    name_of,
    print_for_programs,
    remark,
    say,
    say_csv,
    table,
)
from orchid.kernel.terminal.polling import polls
from orchid.kernel.wire.rules.key_names import CLUSTERS, TOKENS, next_name, number_of

PUBLISHED_KEYS = "/openid/v1/jwks"
KIND, VERSION = "SigningKey", "v1beta1"
PUBLISHED, ACTIVE, VERIFYING, RETIRED = "Published", "Active", "Verifying", "Retired"
SEALING = "sealing"
REJECTED, CONFLICT, FORBIDDEN, NOT_FOUND = 422, 409, 403, 404
LARGEST_KEY = 64 * 1024
ONLY_ITS_CLUSTER = (
    "a public key verifies tokens of its cluster, and none of Orchid's own accounts (servers get "
    "earlier keys of those by --service-account-key-file)"
)
HOUR = timedelta(hours=1)
BUSY_SECONDS = 30

Arguments = Callable[[argparse.ArgumentParser], object]


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    for name, words, arguments, act in (
        ("list", "list the keys that sign", add_watch, _list),
        ("show", "show a key, or the sealing keys", _name_argument, _show),
        (
            "rotate",
            "have the successor of a key sign, or add a sealing key",
            _rotate_arguments,
            _rotate,
        ),
        ("back", "sign with a key again that still has its private key", _name_argument, _back),
        (
            "retire",
            "no longer accept what a key signed, or remove a sealing key",
            asks(_retire_arguments),
            _retire,
        ),
        ("import", "import a private key of a Secret, or a public key", _import_arguments, _import),
    ):
        action = actions.add_parser(
            name, help=words, description=f"{words.capitalize()}.", allow_abbrev=False
        )
        arguments(action)
        add_flags(action, forms=LIST_FORMS if name == "list" else SHOW_FORMS)
        action.set_defaults(act=act)
    words = "make a key that signs tokens; no server is asked"
    making = actions.add_parser("new", help=words, description=f"{words.capitalize()}.")
    making.add_argument("file", type=Path, metavar="FILE", help="where; never overwritten")
    making.set_defaults(act=_new)


def run(arguments: argparse.Namespace) -> int:
    code: int = arguments.act(arguments)
    return code


# -- looking -------------------------------------------------------------------------------


def _list(arguments: argparse.Namespace) -> int:
    server = connect(arguments)
    if not arguments.watch and not next(iter(server.items(url(server))), None):
        return _list_published(arguments, server)
    return show_list(arguments, server, url(server), COLUMNS, empty="no keys", order=_order)


def _list_published(arguments: argparse.Namespace, server: ServerConnection) -> int:
    """The public keys as JSON Web Keys, of a server whose keys are files."""
    keys = list(server.get(PUBLISHED_KEYS).get("keys") or ())
    rows = [(each.get("kid", ""), each.get("alg", ""), each.get("kty", "")) for each in keys]
    if arguments.output == "csv":
        say_csv(("key", "algorithm", "type"), rows)
    elif not print_for_programs(arguments.output, keys):
        table(("KEY", "ALGORITHM", "TYPE"), rows, empty="no keys are published")
    return 0


def _name_argument(parser: argparse.ArgumentParser) -> None:
    completed(parser.add_argument("name", metavar="NAME"), "key")


def _show(arguments: argparse.Namespace) -> int:
    if arguments.name == SEALING:
        return sealing_key.show(arguments)
    server = connect(arguments)
    key = server.get(url(server, arguments.name))
    if print_for_programs(arguments.output, key):
        return 0
    status = key.get("status") or {}
    dependents = status.get("dependents") or {}
    facts(
        [
            ("Name", arguments.name),
            ("For", _purpose(key)),
            ("State", _state(key)),
            ("Key id", status.get("keyID", "")),
            ("Algorithm", status.get("algorithm", "")),
            ("Source", status.get("source", "")),
            *((f"{word.capitalize()} since", at) for word, at in _times(status)),
            *((("Revocation list", f"/crl/{name}.crl"),) if (name := _list_name(status)) else ()),
            *_dependent_facts(dependents),
            *(
                (condition["type"], _condition_text(condition))
                for condition in status.get("conditions") or ()
            ),
        ]
    )
    return 0


def _times(status: Json) -> list[tuple[str, str]]:
    found: dict[str, str] = status.get("times") or {}
    return list(found.items())


def _dependent_facts(dependents: Json) -> list[tuple[str, Any]]:
    rows: list[tuple[str, Any]] = []
    if dependents.get("live"):
        until, holders = dependents.get("end", "?"), dependents.get("holders")
        of = f" of {holders}" if holders else ""
        rows.append(("Live", f"{dependents['live']}{of}, until {until}"))
        longest = [
            f"{entry['holder']} ({entry['count']})" for entry in dependents.get("longest") or ()
        ]
        rows.append(("Longest", longest))
    if dependents.get("secrets"):
        rows.append(("In Secrets", f"{dependents['secrets']}; they never end"))
    if dependents.get("unknownUntil"):
        rows.append(("Unknown until", dependents["unknownUntil"]))
    return rows


def _list_name(status: Json) -> str:
    return str(status.get("revocationList") or "")


def _condition_text(one: Json) -> Cell:
    is_true = one.get("status") == "True"
    return Cell(
        f"{'yes' if is_true else 'no'}: {one.get('message', '')}", "good" if is_true else ""
    )


# -- steps ---------------------------------------------------------------------------------


def wait_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--wait",
        type=times.duration_of,
        default=0,
        metavar="25h",
        help="how long to wait until the server allows it (default: not at all)",
    )


def _rotate_arguments(parser: argparse.ArgumentParser) -> None:
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


def _rotate(arguments: argparse.Namespace) -> int:
    if arguments.hurry and arguments.what in (SEALING, TOKENS):
        raise Complaint("--hurry is for certificates: name an authority", USAGE)
    if arguments.what == SEALING:
        return sealing_key.rotate(arguments)
    authority = "" if arguments.what == TOKENS else arguments.what
    return rotate(arguments, connect(arguments), authority)


def rotate(arguments: argparse.Namespace, server: ServerConnection, authority: str = "") -> int:
    """Have the successor sign: for an authority, or without one for tokens."""
    keys = [key for key in server.items(url(server)) if _group(key["spec"]) == authority]
    waiting = [key for key in sorted(keys, key=_number) if key["spec"]["state"] == PUBLISHED]
    if waiting:
        successor = name_of(waiting[0])
    elif authority:
        successor = _create_successor(server, authority, keys)
    else:
        raise Complaint(f"no key is Published; {_next_key(server)}")
    done = f"signs certificates of {authority}" if authority else "signs tokens"
    if authority:
        remark_consumers(server, authority)
    code = _step(arguments, server, successor, ACTIVE, done)
    for key in keys if arguments.hurry else ():
        if key["spec"]["state"] in (ACTIVE, VERIFYING):
            _hurry(server, name_of(key))
    return code


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
    signing = max(filter(_is_active, keys), key=_activation, default=None)
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
    name = name_of(_create(server, spec))
    remark(f"created {name}")
    return name


def _create(server: ServerConnection, spec: Json) -> Json:
    """Create a key under the next name."""
    keys = {name_of(record): _group(record["spec"]) for record in server.items(url(server))}
    taken = (
        {name_of(record) for record in server.items(authorities(server))} if _group(spec) else set()
    )
    name = next_name(keys, _group(spec), taken)
    return server.post(
        url(server),
        {
            "apiVersion": f"{server.names.identity}/{VERSION}",
            "kind": KIND,
            "metadata": {"name": name},
            "spec": spec,
        },
    )


def _back(arguments: argparse.Namespace) -> int:
    arguments.wait, server = 0, connect(arguments)
    if server.get(url(server, arguments.name))["spec"]["state"] == PUBLISHED:
        raise Complaint(f"{arguments.name} is {PUBLISHED}: orchid key rotate has it sign")
    return _step(arguments, server, arguments.name, ACTIVE, "signs again")


def _retire_arguments(parser: argparse.ArgumentParser) -> None:
    _name_argument(parser)
    wait_argument(parser)
    sealing_key.add_file(parser)


def _retire(arguments: argparse.Namespace) -> int:
    kind, slash, name = arguments.name.partition("/")
    if kind == SEALING and slash:
        return sealing_key.retire(arguments, name)
    insist(
        arguments, f"Retire {arguments.name}? It never signs again, and what it signed is refused."
    )
    done, server = "is retired; what it signed is refused", connect(arguments)
    if authority := _authority(server.get(url(server, arguments.name))):
        remark_consumers(server, authority)
    return _step(arguments, server, arguments.name, RETIRED, done)


def remark_consumers(server: ServerConnection, authority: str) -> None:
    """Print how many known clients of the authority's bundle have not fetched it yet."""
    bundle = path("apis", server.names.identity, VERSION, "publishedbundles", authority)
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


# -- import and new ------------------------------------------------------------------------


def _import_arguments(parser: argparse.ArgumentParser) -> None:
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--secret", metavar="NAMESPACE/NAME", help="a Secret with tls.key")
    source.add_argument("--pkcs11", metavar="LABEL", help="a key of an authority in the HSM")
    source.add_argument(
        "--public", type=Path, metavar="FILE", help="PEM: a key that only verifies; with --cluster"
    )
    authority = parser.add_argument(
        "--authority", default="", metavar="NAME", help="the key of an authority, with its tls.crt"
    )
    completed(authority, "authority")
    cluster = parser.add_argument(
        "--cluster", default="", metavar="NAME", help="the cluster to which a public key belongs"
    )
    completed(cluster, "cluster")


def _import(arguments: argparse.Namespace) -> int:
    from orchid.kernel.credentials.files import read_bounded
    from orchid.kernel.credentials.refusals import Refusal

    if bool(arguments.public) != bool(arguments.cluster):
        raise Complaint(f"--public and --cluster belong together: {ONLY_ITS_CLUSTER}", USAGE)
    server = connect(arguments)
    if arguments.public:
        try:
            spec: Json = {
                "publicKey": read_bounded(arguments.public, LARGEST_KEY).decode("latin-1")
            }
        except Refusal as refusal:
            raise Complaint(str(refusal), USAGE) from None
    elif arguments.pkcs11:
        spec = {"pkcs11": {"label": arguments.pkcs11}}
    else:
        namespace, slash, name = arguments.secret.partition("/")
        if not (namespace and slash and name):
            raise Complaint(f"{arguments.secret!r} is not NAMESPACE/NAME", USAGE)
        spec = {"secretRef": {"namespace": namespace, "name": name}}
    for word in ("authority", "cluster"):
        if name := getattr(arguments, word):
            spec[word] = name
    key = _create(server, spec)
    if not print_for_programs(arguments.output, key):
        say(f"imported {name_of(key)}: {key['status']['keyID']}, {key['spec']['state']}")
    return 0


def _new(arguments: argparse.Namespace) -> int:
    from orchid.kernel.credentials import keys

    if arguments.file.exists():
        raise Complaint(f"{arguments.file} is already there", USAGE)
    key = keys.generate()
    write_secret(arguments.file, key.pem().reveal().encode())
    say(f"made {arguments.file}: {key.kid}")
    name = shlex.quote(str(arguments.file))
    remark(
        f"next: on every server, --service-account-key-file {name} beside the old one; when all "
        f"publish it (orchid key list), --service-account-signing-key-file {name}"
    )
    return 0


# -- reading answers -----------------------------------------------------------------------


def url(server: ServerConnection, *parts: str) -> str:
    return path("apis", server.names.identity, VERSION, "signingkeys", *parts)


def authorities(server: ServerConnection, *parts: str) -> str:
    return path("apis", server.names.identity, VERSION, "certificateauthorities", *parts)


def _authority(key: Json) -> str:
    return str(key["spec"].get("authority") or "")


def _group(spec: Json) -> str:
    """The keys of which one signs: of an authority, or of a cluster; empty for token keys."""
    cluster = spec.get("cluster")
    return f"{CLUSTERS}{cluster}" if cluster else str(spec.get("authority") or "")


def _purpose(key: Json) -> str:
    return _group(key["spec"]) or TOKENS


def _number(key: Json) -> int:
    return number_of(name_of(key))


def _is_active(key: Json) -> bool:
    return bool(key["spec"]["state"] == ACTIVE)


def _activation(key: Json) -> str:
    return str(((key.get("status") or {}).get("times") or {}).get("active", ""))


def _order(key: Json) -> tuple[str, int]:
    return _group(key["spec"]), _number(key)


def _state(key: Json) -> Cell:
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
    ListColumn("FOR", _purpose),
    ListColumn("STATE", _state),
    ListColumn("ALGORITHM", lambda one: (one.get("status") or {}).get("algorithm", "")),
    ListColumn("LIVE", _live),
    ListColumn("UNTIL", _until),
    ListColumn("KEY ID", lambda one: (one.get("status") or {}).get("keyID", ""), is_wide=True),
)
