"""`orchid cluster`: Kubernetes clusters whose credentials can be revoked here.

    orchid cluster add prod --kubeconfig prod.kubeconfig --out prod    register; write its files
    orchid cluster doctor prod --kubeconfig prod.kubeconfig            prove that it works
    orchid cluster list                                                calls and denials of each
    orchid cluster show prod
    orchid cluster credential prod --out prod                          renew its API server's token
    orchid cluster remove prod

With `add` and `doctor`, --kubeconfig is that of the cluster, --orchid-kubeconfig that of Orchid.
`add` reads the issuer and the client authorities from the cluster. It changes nothing there, unless
--inventory is given: then it creates an account that may read certificate requests. What to revoke
is said with `orchid revoke … --cluster prod`.
"""

import argparse
from pathlib import Path
from typing import Any

from orchid.features.clusters.commands import cluster_inventory, cluster_setup
from orchid.features.clusters.commands.cluster_facts import authorities_of, issuer_of, object_url
from orchid.features.clusters.kinds.cluster import inventory_secret
from orchid.kernel.terminal import kubeconfig_file, times
from orchid.kernel.terminal.asking import asks, insist
from orchid.kernel.terminal.connection import (
    NOT_FOUND,
    CommandRefused,
    Json,
    ServerConnection,
    path,
)
from orchid.kernel.terminal.flags import add_lifetime, name_argument, no_arguments
from orchid.kernel.terminal.kubeconfig_file import FLAG, FoundKubeconfig
from orchid.kernel.terminal.objects import ListColumn, show_list
from orchid.kernel.terminal.output import (
    REFUSED,
    USAGE,
    Cell,
    Complaint,
    facts,
    name_of,
    print_for_programs,
    remark,
    say,
    say_json,
    table,
)
from orchid.kernel.terminal.subcommands import add_subcommands, run_subcommand
from orchid.kernel.wire.naming import KUBERNETES
from orchid.kernel.wire.rules.names import label_errors

KIND = "Cluster"
YEAR = 365 * 86_400
_name_argument = name_argument("cluster")
POLICIES = ("NoOpinion", "Deny")
FOR_PROGRAMS = ("json", "yaml", "name")
LIMITS = (
    "not covered: members of system:masters, for whom the API server does not call the webhook; "
    "keep their credentials short-lived",
    f"the control plane, accounts of {KUBERNETES.system_namespace} and nodes are not asked about: "
    "see matchConditions",
    "a watch that is open goes on until its time-out",
    "the cluster's own TokenReview still accepts a revoked token",
    "a revoked credential gets 403, not 401",
)


def configure(parser: argparse.ArgumentParser) -> None:
    add_subcommands(
        parser,
        (
            ("add", "register a cluster; print the files for its API server", _add_arguments, _add),
            ("list", "list clusters", no_arguments, _list),
            ("show", "show a cluster", _name_argument, _show),
            (
                "credential",
                "issue another token to the API server of a cluster",
                _credential_arguments,
                _credential,
            ),
            ("doctor", "prove that a revocation works in a cluster", _doctor_arguments, _doctor),
            ("remove", "remove a cluster", asks(_name_argument), _remove),
        ),
        elsewhere=("add", "doctor"),
    )


run = run_subcommand


# -- add -------------------------------------------------------------------------------------


def _cluster_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--kubeconfig",
        dest="cluster_kubeconfig",
        type=Path,
        required=True,
        metavar="FILE",
        help="a kubeconfig of an administrator of the cluster",
    )
    parser.add_argument("--cluster-context", default="", help="which of its contexts to use")


def _file_arguments(parser: argparse.ArgumentParser) -> None:
    words = "how long the token of the API server is valid (default: 365d)"
    add_lifetime(parser, "365d", words, default=YEAR)
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="write files there instead of printing them"
    )


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME")
    _cluster_arguments(parser)
    _file_arguments(parser)
    parser.add_argument(
        "--url",
        default="",
        help="the address of Orchid as the API server reaches it (default: as registered, or as "
        "this command does)",
    )
    parser.add_argument(
        "--directory",
        default=cluster_setup.DIRECTORY,
        metavar="PATH",
        help="where the API server has the files (default: %(default)s)",
    )
    parser.add_argument("--issuer", default="", help="of its tokens (default: read from it)")
    parser.add_argument(
        "--failure-policy",
        choices=POLICIES,
        default=POLICIES[0],
        help="the decision of the API server while Orchid does not respond (default: NoOpinion)",
    )
    parser.add_argument(
        "--inventory",
        action="store_true",
        help="record its certificates: creates an account in the cluster that may read "
        "certificatesigningrequests",
    )


def _add(arguments: argparse.Namespace, server: ServerConnection) -> int:
    _require_directory(arguments)
    _require_name(arguments.name)
    cluster = connect_cluster(arguments)
    before = _existing(server, arguments.name)
    spec: Json = {
        "issuer": arguments.issuer or issuer_of(cluster),
        "clientAuthorities": authorities_of(cluster),
    }
    url = _webhook_url(arguments, server, before)
    token, spec["credential"] = cluster_setup.credential(
        server, arguments.name, url, arguments.lifetime
    )
    spec["inventory"] = before.get("inventory")
    if arguments.inventory:
        kubeconfig = cluster_inventory.prepare(cluster, arguments.name)
        spec["inventory"] = {"secretName": inventory_secret(arguments.name)}
    record = cluster_setup.ensure(
        server,
        object_url(server),
        {
            "apiVersion": f"{server.naming.identity}/v1beta1",
            "kind": KIND,
            "metadata": {"name": arguments.name},
            "spec": {name: value for name, value in spec.items() if value},
        },
    )
    if arguments.inventory:
        cluster_inventory.store(server, record, kubeconfig)
    files = {
        cluster_setup.CONFIGURATION: cluster_setup.configuration(
            arguments.failure_policy, cluster_setup.minor_version(cluster), arguments.directory
        ),
        cluster_setup.KUBECONFIG: cluster_setup.kubeconfig(server.access, url, arguments.directory),
        cluster_setup.CREDENTIAL: token,
    }
    _hand_out(arguments, files, record)
    for limit in LIMITS:
        remark(f"limit: {limit}")
    remark(f"next: configure the API server, then orchid cluster doctor {arguments.name}")
    return 0


def _require_directory(arguments: argparse.Namespace) -> None:
    """The files have a token: it would be lost where only the object is printed."""
    if arguments.output in FOR_PROGRAMS and arguments.out is None:
        raise Complaint(f"-o {arguments.output} does not print the files; add --out DIR", USAGE)


def _require_name(name: str) -> None:
    """The account of the webhook comes before the Cluster: it would stay if that is refused."""
    for problem in label_errors(name):
        raise Complaint(f"{name!r} cannot be the name of a cluster: {problem}", USAGE)


def _hand_out(arguments: argparse.Namespace, files: dict[str, str], made: Json) -> None:
    """Write or print the files; print the object, if a program asks."""
    is_for_program = arguments.output in FOR_PROGRAMS
    cluster_setup.hand_out(files, arguments.out, remark if is_for_program else say)
    print_for_programs(arguments.output, made)


def _webhook_url(arguments: argparse.Namespace, server: ServerConnection, spec: Json) -> str:
    """The URL that was chosen now or, without one, before; or that of this server."""
    url: str = (spec.get("credential") or {}).get("url", "")
    if url and not arguments.url:
        return url
    return cluster_setup.webhook_url(arguments.url or server.access.server, arguments.name)


def _existing(server: ServerConnection, name: str) -> Json:
    """The spec of a cluster that is registered already; empty if it is not."""
    try:
        spec: Json = server.get(object_url(server, name))["spec"]
    except CommandRefused as refused:
        if refused.status != NOT_FOUND:
            raise
        return {}
    return spec


def connect_cluster(arguments: argparse.Namespace) -> ServerConnection:
    """A connection to the cluster itself."""
    file: Path = arguments.cluster_kubeconfig
    if not file.is_file():
        raise Complaint(f"--kubeconfig: there is no file {file}", USAGE)
    kubeconfig = FoundKubeconfig((file,), FLAG)
    access = kubeconfig_file.load(kubeconfig, arguments.cluster_context)
    return ServerConnection(access, kubeconfig, is_ours=False)


def _credential_arguments(parser: argparse.ArgumentParser) -> None:
    _name_argument(parser)
    _file_arguments(parser)


def _credential(arguments: argparse.Namespace, server: ServerConnection) -> int:
    """Issue another token; the previous one is valid until it expires or is revoked."""
    _require_directory(arguments)
    cluster = server.get(object_url(server, arguments.name))
    url = (cluster["spec"].get("credential") or {}).get("url", "")
    token, credential = cluster_setup.credential(server, arguments.name, url, arguments.lifetime)
    cluster["spec"]["credential"] = credential
    done = server.put(object_url(server, arguments.name), cluster)
    _hand_out(arguments, {cluster_setup.CREDENTIAL: token}, done)
    remark("next: copy it to the API server, which reads it again within a minute")
    return 0


# -- list, show, remove ------------------------------------------------------------------------


def _list(arguments: argparse.Namespace, server: ServerConnection) -> int:
    return show_list(arguments, server, object_url(server), COLUMNS, empty="no clusters")


def _show(arguments: argparse.Namespace, server: ServerConnection) -> int:
    cluster = server.get(object_url(server, arguments.name))
    if print_for_programs(arguments.output, cluster):
        return 0
    spec, status = cluster["spec"], cluster.get("status") or {}
    facts(
        [
            ("Name", arguments.name),
            ("Issuer", spec.get("issuer", "")),
            ("Client authorities", str(spec.get("clientAuthorities", "")).count("BEGIN CERT")),
            ("Credential", _credential_cell(spec.get("credential") or {})),
            ("Webhook", (spec.get("credential") or {}).get("url", "")),
            ("Inventory", "yes" if spec.get("inventory") else "no"),
            ("Last call", _last_call(cluster)),
            ("Calls", status.get("calls", 0)),
            ("Denials", status.get("denials", 0)),
            ("Malformed", status.get("malformed", 0)),
            ("Revocations", revocation_count(server, arguments.name)),
            *(
                (condition["type"], _condition_cell(condition))
                for condition in status.get("conditions") or ()
            ),
        ]
    )
    return 0


def revocation_count(server: ServerConnection, name: str) -> int:
    revocations = path("apis", server.naming.identity, "v1", "credentialrevocations")
    return sum(1 for _ in server.items(revocations, {"fieldSelector": f"spec.cluster={name}"}))


def _remove(arguments: argparse.Namespace, server: ServerConnection) -> int:
    name = arguments.name
    cluster = server.get(object_url(server, name))
    count = revocation_count(server, name)
    insist(
        arguments,
        f"Remove the cluster {name}? Its {count} revocations have no effect any more, also in a "
        "cluster that is added again, and its API server applies its failurePolicy until the "
        "webhook is removed from its configuration.",
    )
    # The Cluster comes last: a removal that stopped half-way can be repeated.
    cluster_setup.remove_credential(server, name)
    if cluster["spec"].get("inventory"):
        cluster_inventory.remove(server, name)
        remark(f"in the cluster, delete its account: {cluster_inventory.DELETION}")
    done = server.delete(object_url(server, name))
    if not print_for_programs(arguments.output, done):
        say(f"removed {name}")
    return 0


# -- doctor ------------------------------------------------------------------------------------


def _doctor_arguments(parser: argparse.ArgumentParser) -> None:
    _name_argument(parser)
    _cluster_arguments(parser)


def _doctor(arguments: argparse.Namespace, server: ServerConnection) -> int:
    from orchid.features.clusters.commands.cluster_checks import examined

    results = examined(server, connect_cluster(arguments), arguments.name)
    wrong = sum(each.state == "wrong" for _, each in results)
    if arguments.output == "json":
        findings = [
            {"check": name, "state": each.state, "text": each.text, "advice": each.advice}
            for name, each in results
        ]
        say_json({"wrong": wrong, "findings": findings})
    else:
        moods = {"good": "good", "note": "", "soon": "waiting", "wrong": "bad"}
        rows: list[tuple[Any, ...]] = []
        for name, each in results:
            text = f"{each.text}; {each.advice}" if each.advice else each.text
            rows.append((Cell(each.state, moods[each.state]), name, text))
        table(("STATE", "CHECK", "RESULT"), rows, "nothing was checked")
    return REFUSED if wrong else 0


# -- cells -------------------------------------------------------------------------------------


def _last_call(cluster: Json) -> str:
    last = times.parse((cluster.get("status") or {}).get("lastCall"))
    return f"{times.span((times.now() - last).total_seconds())} ago" if last else "never"


def _credential_cell(credential: Json) -> Cell:
    end = times.parse(credential.get("expires"))
    if end is None:
        return Cell("none" if not credential else "no end")
    left = (end - times.now()).total_seconds()
    mood = "bad" if left <= 0 else "waiting" if left < cluster_setup.RENEW_BEFORE else ""
    return Cell(f"token, {'expires' if left > 0 else 'expired'} {times.until(end)}", mood)


def _condition_cell(condition: Json) -> Cell:
    is_true = condition.get("status") == "True"
    return Cell(condition.get("message", ""), "good" if is_true else "bad")


def _connected(cluster: Json) -> Cell:
    conditions = (cluster.get("status") or {}).get("conditions") or ()
    is_true = any(one.get("type") == "Connected" and one["status"] == "True" for one in conditions)
    return Cell("yes", "good") if is_true else Cell("no", "waiting")


def _count(field: str) -> Any:
    return lambda one: (one.get("status") or {}).get(field, 0)


COLUMNS = (
    ListColumn("NAME", name_of),
    ListColumn("CONNECTED", _connected),
    ListColumn("LAST CALL", _last_call),
    ListColumn("CALLS", _count("calls")),
    ListColumn("DENIALS", _count("denials")),
    ListColumn("MALFORMED", _count("malformed"), is_wide=True),
    ListColumn("ISSUER", lambda one: one["spec"].get("issuer", ""), is_wide=True),
    ListColumn(
        "CREDENTIAL", lambda one: _credential_cell(one["spec"].get("credential") or {}), True
    ),
)
