"""`orchid host`: hosts that get credentials of their own, and for the accounts placed on them.

    orchid host new web-1.example.com --for 24h --out join.kubeconfig    let a host join
    orchid host new web-1.example.com --replace --out join.kubeconfig    after a reinstallation
    orchid host place web-1.example.com web/frontend --audience https://vault.example
    orchid host list
    orchid host show web-1.example.com
    orchid host revoke web-1.example.com

A host is a Node, and a Pod object with its name places an account on it. `new` writes a bootstrap
kubeconfig for that host alone; docs/hosts.md describes what to do with it.
"""

import argparse
import secrets
import string

from orchid.features.certificates.commands import issued, kubeconfig
from orchid.features.hosts.commands.host_credentials import (
    all_of,
    certificates_of,
    end_credentials,
    join_tokens,
    live_of,
    node_certificates,
    pods_of,
    requests_of,
    revoke_user,
    token_url,
)
from orchid.features.rights.commands import grants
from orchid.kernel.credentials.x509.revocation_list import REASONS
from orchid.kernel.terminal import times
from orchid.kernel.terminal.asking import add_yes, insist
from orchid.kernel.terminal.connection import (
    CONFLICT,
    NOT_FOUND,
    CommandRefused,
    Json,
    ServerConnection,
    path,
)
from orchid.kernel.terminal.flags import (
    add_lifetime,
    add_secret_out,
    name_argument,
    no_arguments,
    print_or_write,
)
from orchid.kernel.terminal.objects import ListColumn, account_of, completed, show_list
from orchid.kernel.terminal.output import (
    USAGE,
    Complaint,
    facts,
    name_of,
    print_for_programs,
    remark,
    say,
)
from orchid.kernel.terminal.subcommands import add_subcommands, run_subcommand
from orchid.kernel.wire.rules.names import subdomain_errors
from orchid.kernel.wire.user import HOSTS, NODE_PREFIX, NODES

DAY = 86_400
TOKEN_LETTERS = string.ascii_lowercase + string.digits
KEY_TYPES = ("ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519", "RSA3072", "RSA4096")


def configure(parser: argparse.ArgumentParser) -> None:
    add_subcommands(
        parser,
        (
            ("new", "write a kubeconfig with which a host joins", _new_arguments, _new),
            ("place", "let a host get credentials of an account", _place_arguments, _place),
            ("list", "list hosts", no_arguments, _list),
            ("show", "show a host, its certificates and its accounts", _host_argument, _show),
            ("revoke", "revoke all credentials of a host", _revoke_arguments, _revoke),
        ),
    )


run = run_subcommand

_host_argument = name_argument("host", "HOST")


# -- new -------------------------------------------------------------------------------------


def _new_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("host", metavar="HOST", help="its name: web-1.example.com")
    add_lifetime(parser, "24h", "how long the host may join (default: 24h)", default=DAY)
    parser.add_argument(
        "--replace",
        action="store_true",
        help="revoke the certificate that the host has now, and end earlier join files",
    )
    add_secret_out(parser)


def _new(arguments: argparse.Namespace, server: ServerConnection) -> int:
    host: str = arguments.host
    for problem in subdomain_errors(host):
        raise Complaint(f"{host!r} is no name for a host: {problem}", USAGE)
    live = live_of(server, certificates_of(server, host))
    if arguments.replace:
        reason = f"orchid host new {host} --replace"
        end_credentials(server, host, "superseded", reason, certificates_of)
    elif live:
        remark(
            f"{host} has the certificate {min(live)}: a request with another key "
            "waits until that is revoked or has expired. To revoke it now, add --replace"
        )
    bind_roles(server)
    token = create_token(server, host, arguments.lifetime)
    text = kubeconfig.document(server, host, {"token": token}, "")
    remark(f"{host} can join with this within {times.span(arguments.lifetime)}")
    print_or_write(text, arguments.out)
    return 0


def bind_roles(server: ServerConnection) -> None:
    """Let join tokens create requests and get them approved, and let hosts renew."""
    own = f"system:{server.naming.certificates}:certificatesigningrequests"
    for role, group in (
        ("system:node-bootstrapper", HOSTS),
        (f"{own}:nodeclient", HOSTS),
        (f"{own}:selfnodeclient", NODES),
    ):
        subject = {"kind": "Group", "name": group, "apiGroup": server.naming.rbac}
        grants.grant(server, role, subject, "")


def create_token(server: ServerConnection, host: str, seconds: int) -> str:
    token_id, secret = _letters(6), _letters(16)
    expires = times.text_of(times.now().timestamp() + seconds)
    body: Json = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": f"bootstrap-token-{token_id}"},
        "type": server.naming.bootstrap_token_type,
        "stringData": {
            "token-id": token_id,
            "token-secret": secret,
            "usage-bootstrap-authentication": "true",
            "auth-extra-groups": HOSTS,
            "node-name": host,
            "expiration": expires,
            "description": f"orchid host new {host}",
        },
    }
    server.post(token_url(server), body)
    return f"{token_id}.{secret}"


def _letters(count: int) -> str:
    return "".join(secrets.choice(TOKEN_LETTERS) for _ in range(count))


# -- place -----------------------------------------------------------------------------------


def _place_arguments(parser: argparse.ArgumentParser) -> None:
    _host_argument(parser)
    completed(parser.add_argument("account", metavar="NAMESPACE/NAME"), "account")
    parser.add_argument(
        "--audience",
        action="append",
        default=[],
        metavar="URL",
        help="let the host get tokens of the account for this audience; may be repeated",
    )
    parser.add_argument(
        "--api", action="store_true", help="let the host get tokens for this server's API"
    )
    parser.add_argument(
        "--signer",
        action="append",
        default=[],
        metavar="NAME",
        help="let the host get certificates of this signer for the account; may be repeated",
    )
    parser.add_argument("--key-type", choices=KEY_TYPES, default=KEY_TYPES[0])
    parser.add_argument("--name", default="", help="of the Pod (default: ACCOUNT-HOST)")


def _place(arguments: argparse.Namespace, server: ServerConnection) -> int:
    namespace, account = account_of(arguments.account, server.access.namespace)
    name = arguments.name or f"{account}-{arguments.host}"
    if not (arguments.audience or arguments.api or arguments.signer):
        raise Complaint("name what the host gets: --audience, --api or --signer", USAGE)
    body: Json = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "nodeName": arguments.host,
            "serviceAccountName": account,
            "automountServiceAccountToken": False,
            "volumes": [{"name": "credentials", "projected": {"sources": _sources(arguments)}}],
        },
    }
    try:
        pod = server.post(path("api", "v1", "namespaces", namespace, "pods"), body)
    except CommandRefused as refused:
        if refused.status != CONFLICT:
            raise
        raise Complaint(
            f"the Pod {namespace}/{name} exists already; choose another --name or delete it"
        ) from None
    if not print_for_programs(arguments.output, pod):
        say(f"placed {namespace}/{account} on {arguments.host}, by the Pod {namespace}/{name}")
    return 0


def _sources(arguments: argparse.Namespace) -> list[Json]:
    audiences = [*arguments.audience, *([""] if arguments.api else [])]
    tokens: list[Json] = [
        {
            "serviceAccountToken": {
                "path": f"token-{index}",
                **({"audience": audience} if audience else {}),
            }
        }
        for index, audience in enumerate(audiences)
    ]
    return tokens + [
        {
            "podCertificate": {
                "signerName": signer,
                "keyType": arguments.key_type,
                "credentialBundlePath": f"certificate-{index}.pem",
            }
        }
        for index, signer in enumerate(arguments.signer)
    ]


# -- list and show ---------------------------------------------------------------------------


def _list(arguments: argparse.Namespace, server: ServerConnection) -> int:
    ends: dict[str, str] = {}
    for record in node_certificates(server):
        host = issued.common_name(record).removeprefix(NODE_PREFIX)
        if issued.is_live(record):
            ends[host] = max(ends.get(host, ""), record["spec"].get("notAfter", ""))
    columns = (
        ListColumn("HOST", lambda record: record["metadata"]["name"]),
        ListColumn("CERTIFICATE", lambda record: _until(ends.get(record["metadata"]["name"], ""))),
        ListColumn("AGE", lambda record: times.age(record["metadata"].get("creationTimestamp"))),
    )
    if arguments.output in ("text", "wide"):
        _remark_without_node(server, ends)
    url = path("api", "v1", "nodes")
    return show_list(arguments, server, url, columns, empty="no hosts")


def _remark_without_node(server: ServerConnection, ends: dict[str, str]) -> None:
    """Hosts that have no Node: with a certificate, or with a join token only."""
    nodes = {node["metadata"]["name"] for node in server.items(path("api", "v1", "nodes"))}
    joined = sorted(ends.keys() - nodes)
    if joined:
        remark(f"joined, but no Node object yet: {', '.join(joined)}")
    invited = {host for host, _ in join_tokens(server)} - nodes - ends.keys()
    if invited:
        remark(f"may join, and have not yet: {', '.join(sorted(invited))}")


def _until(text: str) -> str:
    moment = times.parse(text)
    return f"valid for {times.span((moment - times.now()).total_seconds())}" if moment else "none"


def _show(arguments: argparse.Namespace, server: ServerConnection) -> int:
    host: str = arguments.host
    node = _node(server, host)
    certificates = list(certificates_of(server, host))
    pods = list(pods_of(server, host))
    tokens = [token for name, token in join_tokens(server) if name == host]
    if node is None and not (certificates or pods or tokens):
        raise Complaint(f"there is no host {host}")
    summary = {"node": node, "certificates": certificates, "pods": pods}
    if print_for_programs(arguments.output, summary):
        return 0
    facts(
        [
            ("Host", host),
            ("Node", f"created {times.age(node['metadata'].get('creationTimestamp'))} ago")
            if node
            else ("Node", "none"),
            ("Certificates", [_described(entry) for entry in certificates] or ["none"]),
            (
                "Accounts",
                [
                    f"{entry['metadata']['namespace']}/"
                    f"{entry['spec'].get('serviceAccountName', '')} "
                    f"(by the Pod {name_of(entry)})"
                    for entry in pods
                ]
                or ["none"],
            ),
            ("Join tokens", [entry["metadata"]["name"] for entry in tokens] or ["none"]),
        ]
    )
    return 0


def _described(record: Json) -> str:
    serial, revoked = record["metadata"]["name"], issued.revocation_of(record)
    if revoked:
        return f"{serial}, revoked ({revoked.get('reason', 'unspecified')})"
    end = issued.end_of(record)
    return f"{serial}, {'expires' if end > times.now() else 'expired'} {times.until(end)}"


def _node(server: ServerConnection, host: str) -> Json | None:
    try:
        return server.get(path("api", "v1", "nodes", host))
    except CommandRefused as refused:
        if refused.status != NOT_FOUND:
            raise
        return None


# -- revoke ----------------------------------------------------------------------------------


def _revoke_arguments(parser: argparse.ArgumentParser) -> None:
    _host_argument(parser)
    parser.add_argument(
        "--reason", choices=tuple(REASONS), default="unspecified", help="why, as CRLs name it"
    )
    parser.add_argument("--message", default="", help="why, in a sentence")
    add_yes(parser)


def _revoke(arguments: argparse.Namespace, server: ServerConnection) -> int:
    host: str = arguments.host
    live = live_of(server, all_of(server, host))
    pods = list(pods_of(server, host))
    tokens = [token for name, token in join_tokens(server) if name == host]
    if not (live or pods or tokens or requests_of(server, host)):
        raise Complaint(f"{host} has no certificate, no Pod, no join token and no request")
    insist(
        arguments,
        f"Revoke {_count(len(live), 'certificate')} of {host}, delete {_count(len(pods), 'Pod')} "
        f"with the tokens bound to them, and delete {_count(len(tokens), 'join token')}?",
    )
    revoke_user(server, host, arguments.reason, arguments.message)
    for pod in pods:  # the accounts placed on the host, which can request certificates too
        meta = pod["metadata"]
        server.delete(path("api", "v1", "namespaces", meta["namespace"], "pods", meta["name"]))
    count, ended = end_credentials(server, host, arguments.reason, arguments.message, all_of)
    say(
        f"revoked {_count(count, 'certificate')}, "
        f"deleted {_count(len(pods), 'Pod')} and {_count(ended, 'join token')}"
    )
    return 0


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
