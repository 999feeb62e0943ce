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
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

from orchid.features.sealing.commands import sealing_key
from orchid.features.token_keys.commands.key_objects import (
    COLUMNS,
    create,
    order,
    purpose,
    state_cell,
    url,
)
from orchid.features.token_keys.commands.key_steps import (
    back,
    name_argument,
    retire,
    retire_arguments,
    rotate_arguments,
    rotate_named,
)
from orchid.kernel.terminal.asking import asks
from orchid.kernel.terminal.connection import Json, ServerConnection, add_flags, connect
from orchid.kernel.terminal.flags import write_secret
from orchid.kernel.terminal.objects import LIST_FORMS, SHOW_FORMS, add_watch, completed, show_list
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

PUBLISHED_KEYS = "/openid/v1/jwks"
SEALING = "sealing"
LARGEST_KEY = 64 * 1024
ONLY_ITS_CLUSTER = (
    "a public key verifies tokens of its cluster, and none of Orchid's own accounts (servers get "
    "earlier keys of those by --service-account-key-file)"
)

Arguments = Callable[[argparse.ArgumentParser], object]


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    for name, words, arguments, act in (
        ("list", "list the keys that sign", add_watch, _list),
        ("show", "show a key, or the sealing keys", name_argument, _show),
        (
            "rotate",
            "have the successor of a key sign, or add a sealing key",
            rotate_arguments,
            rotate_named,
        ),
        ("back", "sign with a key again that still has its private key", name_argument, back),
        (
            "retire",
            "no longer accept what a key signed, or remove a sealing key",
            asks(retire_arguments),
            retire,
        ),
        ("import", "import a private key of a Secret, or a public key", _import_arguments, _import),
    ):
        action = actions.add_parser(
            name, help=words, description=f"{words.capitalize()}.", allow_abbrev=False
        )
        arguments(action)
        add_flags(action, forms=LIST_FORMS if name == "list" else SHOW_FORMS)
        action.set_defaults(act=act)
    words = "create the file of a key that signs tokens, offline"
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
    return show_list(arguments, server, url(server), COLUMNS, empty="no keys", order=order)


def _list_published(arguments: argparse.Namespace, server: ServerConnection) -> int:
    """The public keys as JSON Web Keys, of a server whose keys are files."""
    keys = list(server.get(PUBLISHED_KEYS).get("keys") or ())
    rows = [(each.get("kid", ""), each.get("alg", ""), each.get("kty", "")) for each in keys]
    if arguments.output == "csv":
        say_csv(("key", "algorithm", "type"), rows)
    elif not print_for_programs(arguments.output, keys):
        table(("KEY", "ALGORITHM", "TYPE"), rows, empty="no keys are published")
    return 0


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
            ("For", purpose(key)),
            ("State", state_cell(key)),
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
    key = create(server, spec)
    if not print_for_programs(arguments.output, key):
        say(f"imported {name_of(key)}: {key['status']['keyID']}, {key['spec']['state']}")
    return 0


def _new(arguments: argparse.Namespace) -> int:
    from orchid.kernel.credentials import keys

    if arguments.file.exists():
        raise Complaint(f"{arguments.file} is already there", USAGE)
    key = keys.generate()
    write_secret(arguments.file, key.pem().reveal().encode())
    say(f"created {arguments.file}: {key.kid}")
    name = shlex.quote(str(arguments.file))
    remark(
        f"next: on every server, --service-account-key-file {name} beside the old one; when all "
        f"publish it (orchid key list), --service-account-signing-key-file {name}"
    )
    return 0
