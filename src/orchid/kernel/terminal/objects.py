"""Lists of objects: printed and watched in the same way by every command.

A command declares its columns and calls `show_list`; `-o` and `--watch` then mean the same
everywhere. `NAMES` has the API path of each kind of object, for completion.
"""

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from orchid.kernel.terminal.connection import CommandRefused, Json, ServerConnection, path
from orchid.kernel.terminal.output import (
    USAGE,
    Cell,
    Complaint,
    columns,
    name_of,
    print_for_programs,
    say,
    say_csv,
    table,
    without_managed_fields,
)

SHOW_FORMS = ("text", "wide", "json", "yaml", "name")
LIST_FORMS = (*SHOW_FORMS, "csv")
GONE = 410

Keep = Callable[[Json], bool]


class ListColumn(NamedTuple):
    """A title, and a function for its cells; some are only shown with `-o wide`."""

    title: str
    value: Callable[[Json], object]
    is_wide: bool = False
    field: str = ""  # its name in JSON and YAML, for a cell that is no field of the object


def add_watch(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--watch", "-w", action="store_true", help="continue with changes")


def show_list(
    arguments: argparse.Namespace,
    server: ServerConnection,
    target: str,
    declared: Sequence[ListColumn],
    *,
    empty: str,
    query: Mapping[str, str] | None = None,
    keep: Keep = lambda object_: True,
    order: Callable[[Json], Any] | None = None,
) -> int:
    """List objects as the flags request; with --watch continue until interrupted."""
    if arguments.watch and arguments.output == "csv":
        raise Complaint("--watch does not go with -o csv", USAGE)
    objects, version = server.listed(target, query)
    objects = [object_ for object_ in objects if keep(object_)]
    if order is not None:
        objects.sort(key=order)
    shown = [each for each in declared if arguments.output in ("wide", "csv") or not each.is_wide]
    rows = [[each.value(object_) for each in shown] for object_ in objects]
    titles = [each.title for each in shown]
    if not arguments.watch:
        if arguments.output == "csv":
            say_csv([title.lower() for title in titles], rows)
        elif not print_for_programs(
            arguments.output, [with_computed(object_, shown) for object_ in objects]
        ):
            table(titles, rows, empty=empty, is_wide=arguments.output == "wide")
        return 0
    printer = _Printer(arguments.output, shown, [titles, *(_texts(row) for row in rows)])
    for object_ in objects:
        printer.show("", object_)

    def show(change: str, one: Json) -> None:
        if keep(one):
            printer.show(change, one)

    while True:
        version = _follow(server, target, version, query, show)


def with_computed(one: Json, shown: Sequence[ListColumn]) -> Json:
    """The object, and the cells of the table that are no fields of it."""
    return one | {each.field: _texts([each.value(one)])[0] for each in shown if each.field}


class _Printer:
    """Prints one object per line, in columns of constant width."""

    def __init__(
        self, form: str, shown: Sequence[ListColumn], first: Sequence[Sequence[str]]
    ) -> None:
        self._form = form
        self._shown = shown
        self._widths = [max(map(len, column)) for column in zip(*first, strict=True)]
        if form in ("text", "wide"):
            self._line([each.title for each in shown])

    def show(self, change: str, object_: Json) -> None:
        if self._form in ("text", "wide"):
            if change == "DELETED":
                say(f"deleted {name_of(object_)}")
            else:
                self._line(_texts([each.value(object_) for each in self._shown]))
        elif self._form == "json":
            computed = with_computed(object_, self._shown)
            say(json.dumps(without_managed_fields(computed), ensure_ascii=False))
        else:
            if self._form == "yaml":
                say("---")
            print_for_programs(self._form, with_computed(object_, self._shown))

    def _line(self, texts: Sequence[str]) -> None:
        padded = [f"{text:<{width}}" for text, width in zip(texts, self._widths, strict=True)]
        say(columns([padded]))


def _follow(
    server: ServerConnection,
    target: str,
    version: str,
    query: Mapping[str, str] | None,
    show: Callable[[str, Json], None],
) -> str:
    """Print changes until the server ends the watch; return the version to continue from."""
    try:
        for event in server.watch(target, version, query):
            object_ = event.get("object") or {}
            if event.get("type") == "ERROR":
                raise CommandRefused(int(object_.get("code") or 0), str(object_.get("message", "")))
            version = (object_.get("metadata") or {}).get("resourceVersion") or version
            if event.get("type") != "BOOKMARK":
                show(str(event.get("type", "")), object_)
    except CommandRefused as refused:
        if refused.status != GONE:
            raise
        # too old to continue from: missed changes stay missed
        return server.listed(target, query)[1]
    return version


def _texts(row: Sequence[object]) -> list[str]:
    return [each.text if isinstance(each, Cell) else Cell(each).text for each in row]


# -- names, for completion ---------------------------------------------------------------------

Url = Callable[[ServerConnection], str]

NAMES: dict[str, Url] = {
    "request": lambda server: server.group("certificates", "v1", "certificatesigningrequests"),
    "bundle": lambda server: server.group("certificates", "v1beta1", "clustertrustbundles"),
    "published": lambda server: path("apis", server.naming.identity, "v1beta1", "publishedbundles"),
    "policy": lambda server: path("apis", server.naming.identity, "v1", "approvalpolicies"),
    "authority": lambda server: path(
        "apis", server.naming.identity, "v1beta1", "certificateauthorities"
    ),
    "key": lambda server: path("apis", server.naming.identity, "v1beta1", "signingkeys"),
    "cluster": lambda server: path("apis", server.naming.identity, "v1beta1", "clusters"),
    "host": lambda server: path("api", "v1", "nodes"),
    "account": lambda server: path("api", "v1", "serviceaccounts"),
    "role": lambda server: server.group("rbac.authorization", "v1", "clusterroles"),
}


class Completed(NamedTuple):
    """The completion of an argument: names of one kind, and additional words."""

    sort: str
    words: tuple[str, ...]


def completed(action: argparse.Action, sort: str, *words: str) -> None:
    """Let shells complete an argument with names of existing objects, and with these words."""
    assert sort in NAMES
    action.completed = Completed(sort, words)  # type: ignore[attr-defined]  # argparse keeps it


def completed_from(action: argparse.Action) -> Completed | None:
    found: Completed | None = getattr(action, "completed", None)
    return found


def account_of(text: str, default_namespace: str = "") -> tuple[str, str]:
    """Namespace and name of an account; a name alone is in the kubeconfig's namespace."""
    namespace, slash, name = text.rpartition("/")
    namespace = namespace if slash else default_namespace or "default"
    if not namespace or not name or "/" in namespace:
        raise Complaint(f"{text!r} is not NAMESPACE/ACCOUNT", USAGE)
    return namespace, name
