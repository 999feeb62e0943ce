"""The actions of `orchid bundle` on published bundles, which any client fetches below /trust/.

`publish` makes one from trust bundles, `published` lists them, `history` shows the editions of one,
`consumers` which clients have which edition, and `forget` removes clients from that list.
"""

import argparse
import datetime
from collections.abc import Iterator

from orchid.kernel.terminal import times
from orchid.kernel.terminal.asking import asks
from orchid.kernel.terminal.connection import (
    NOT_FOUND,
    CommandRefused,
    Json,
    ServerConnection,
    path,
)
from orchid.kernel.terminal.flags import name_argument, names_argument
from orchid.kernel.terminal.objects import ListColumn, completed, show_list
from orchid.kernel.terminal.output import (
    USAGE,
    Cell,
    Complaint,
    name_of,
    print_for_programs,
    say,
    table,
)
from orchid.kernel.terminal.subcommands import delete_each, for_each

# -- making and listing ------------------------------------------------------------------------


def _publish_arguments(parser: argparse.ArgumentParser) -> None:
    completed(
        parser.add_argument("name", metavar="NAME", help="as in /trust/NAME.pem"), "published"
    )
    parser.add_argument(
        "--signer", action="append", default=[], help="the trust bundles of this signer"
    )
    added = parser.add_argument(
        "--bundle", action="append", default=[], help="the one trust bundle of this name"
    )
    completed(added, "bundle")
    parser.add_argument(
        "--label",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="trust bundles without a signer that have this label; all of several",
    )
    parser.add_argument("--trust-domain", default="", help="of SPIFFE, for /trust/NAME.json")
    parser.add_argument("--refresh", default="", metavar="DURATION", help="1m to 24h; else 5m")


def _publish(arguments: argparse.Namespace, server: ServerConnection) -> int:
    spec: Json = {"sources": list(_sources(arguments))}
    if not spec["sources"]:
        raise Complaint("give at least one of --signer, --bundle and --label", USAGE)
    if arguments.trust_domain:
        spec["trustDomain"] = arguments.trust_domain
    if arguments.refresh:
        spec["refreshHint"] = arguments.refresh
    try:
        bundle = server.get(_url(server, arguments.name))
    except CommandRefused as refused:
        if refused.status != NOT_FOUND:
            raise
        new = {
            "apiVersion": f"{server.naming.identity}/v1beta1",
            "kind": "PublishedBundle",
            "metadata": {"name": arguments.name},
            "spec": spec,
        }
        answer, done = server.post(_url(server), new), "published"
    else:
        answer = server.put(_url(server, arguments.name), {**bundle, "spec": spec})
        done = "changed"
    if not print_for_programs(arguments.output, answer):
        say(f"{done} {arguments.name}: {server.access.server}/trust/{arguments.name}.pem")
    return 0


def _sources(arguments: argparse.Namespace) -> Iterator[Json]:
    yield from ({"signerName": signer} for signer in arguments.signer)
    yield from ({"name": name} for name in arguments.bundle)
    if arguments.label:
        labels = dict(_label(text) for text in arguments.label)
        yield {"labelSelector": {"matchLabels": labels}}


def _label(text: str) -> tuple[str, str]:
    key, equal, value = text.partition("=")
    if not key or not equal:
        raise Complaint(f"--label {text}: not of the form KEY=VALUE", USAGE)
    return key, value


def _published_arguments(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(watch=False)


def _published(arguments: argparse.Namespace, server: ServerConnection) -> int:
    return show_list(arguments, server, _url(server), COLUMNS, empty="no published bundles")


def _unpublish(arguments: argparse.Namespace, server: ServerConnection) -> int:
    return delete_each(arguments, server, _url)


# -- editions and consumers --------------------------------------------------------------------


_name_argument = name_argument("published", words="of a published bundle")


def _history(arguments: argparse.Namespace, server: ServerConnection) -> int:
    bundle = server.get(_url(server, arguments.name))
    editions = bundle.get("status", {}).get("editions") or []
    if print_for_programs(arguments.output, editions):
        return 0
    rows = [
        (
            edition["sequence"],
            _moment(edition["sequence"]),
            edition["certificates"],
            edition["sha256"],
        )
        for edition in editions
    ]
    table(("SEQUENCE", "CHANGED", "CERTIFICATES", "SHA-256"), rows, empty=_not_published(bundle))
    return 0


def _consumers(arguments: argparse.Namespace, server: ServerConnection) -> int:
    bundle = server.get(_url(server, arguments.name))
    current = int(bundle.get("status", {}).get("sequence") or 0)
    _, seen = _stored(server, arguments.name)
    if print_for_programs(arguments.output, seen):
        return 0
    named = sorted(
        seen["named"].items(), key=lambda consumer: (consumer[1]["sequence"], consumer[0])
    )
    rows = [
        (
            name,
            Cell("current", "good") if consumer["sequence"] >= current else Cell("behind", "bad"),
            consumer["sequence"],
            times.age(times.text_of(consumer["seen"])),
        )
        for name, consumer in named
    ]
    table(("NAME", "EDITION", "SEQUENCE", "SEEN"), rows, empty="no client sent a credential")
    behind = [name for name, consumer in named if consumer["sequence"] < current]
    if behind:
        say(f"{len(behind)} of {len(named)} are behind, the longest {behind[0]}")
    others = seen["others"].get(str(current), 0)
    say(f"other clients fetched the current edition {others} times")
    return 0


def _forget_arguments(parser: argparse.ArgumentParser) -> None:
    _name_argument(parser)
    parser.add_argument("consumers", metavar="CONSUMER", nargs="+", help="as consumers shows it")


def _forget(arguments: argparse.Namespace, server: ServerConnection) -> int:
    def forget(name: str) -> tuple[str, Json]:
        stored, seen = _stored(server, arguments.name)
        if stored is None or name not in seen["named"]:
            raise Complaint(f"is no consumer of {arguments.name}")
        del seen["named"][name]
        return f"forgot {name}", _store(server, stored, seen)

    return for_each(arguments, arguments.consumers, forget)


def _stored(server: ServerConnection, name: str) -> tuple[Json | None, Json]:
    """The ConfigMap with the consumers of a bundle, if there is one, and its content."""
    import json

    from orchid.features.trust_bundles import stored_edition

    url = path(
        "api", "v1", "namespaces", server.naming.system_namespace, "configmaps",
        stored_edition.consumers_name(name),
    )  # fmt: skip
    try:
        config_map = server.get(url)
    except CommandRefused as refused:
        if refused.status != NOT_FOUND:
            raise
        return None, {"named": {}, "others": {}}
    try:
        seen = json.loads(config_map["data"][stored_edition.CONSUMERS])
        return config_map, {"named": dict(seen["named"]), "others": dict(seen["others"])}
    except (KeyError, TypeError, ValueError):
        raise Complaint(f"the list of consumers of {name} cannot be read") from None


def _store(server: ServerConnection, stored: Json, seen: Json) -> Json:
    import json

    from orchid.features.trust_bundles import stored_edition

    meta = stored["metadata"]
    url = path("api", "v1", "namespaces", meta["namespace"], "configmaps", meta["name"])
    # With the version that was read, so that no fetch in between is lost.
    return server.put(url, {**stored, "data": {stored_edition.CONSUMERS: json.dumps(seen)}})


# -- how it is shown ---------------------------------------------------------------------------


def _url(server: ServerConnection, *parts: str) -> str:
    return path("apis", server.naming.identity, "v1beta1", "publishedbundles", *parts)


def _moment(sequence: int) -> str:
    return f"{datetime.datetime.fromtimestamp(sequence, datetime.UTC):%Y-%m-%d %H:%M:%S} UTC"


def _ready(found: Json) -> Json:
    conditions = found.get("status", {}).get("conditions") or ()
    return next((one for one in conditions if one.get("type") == "Ready"), {})


def _not_published(found: Json) -> str:
    why = _ready(found).get("message") or "no controller has published it"
    return f"no edition: {why}"


def _ready_cell(found: Json) -> Cell:
    ready = _ready(found)
    is_good = ready.get("status") == "True"
    return Cell("ready" if is_good else ready.get("reason") or "-", "good" if is_good else "bad")


def _behind(found: Json) -> str:
    seen = found.get("status", {}).get("consumers")
    return f"{seen['behind']}/{seen['current'] + seen['behind']}" if seen else "-"


def _changed(found: Json) -> str:
    sequence = found.get("status", {}).get("sequence")
    return times.age(times.text_of(sequence)) if sequence else "-"


COLUMNS = (
    ListColumn("NAME", name_of),
    ListColumn("CERTIFICATES", lambda one: one.get("status", {}).get("certificates", 0)),
    ListColumn("SEQUENCE", lambda one: one.get("status", {}).get("sequence", "-")),
    ListColumn("CHANGED", _changed),
    ListColumn("BEHIND", _behind),
    ListColumn("READY", _ready_cell),
)

ROWS = (
    ("publish", "publish trust bundles below /trust/", _publish_arguments, _publish),
    ("published", "list published bundles", _published_arguments, _published),
    ("unpublish", "delete published bundles", asks(names_argument("published")), _unpublish),
    ("history", "show the editions of a published bundle", _name_argument, _history),
    ("consumers", "show which clients have which edition", _name_argument, _consumers),
    ("forget", "remove clients from the consumers", _forget_arguments, _forget),
)
