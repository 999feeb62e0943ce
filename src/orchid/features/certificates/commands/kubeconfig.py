"""`orchid kubeconfig`: a kubeconfig for a workload or a person, in one file.

With --account it has a token of that account, which expires; with --cert and --key a certificate.
The server and its CA are those of the kubeconfig of the command itself. It goes to standard output,
or with --out to a file that only its owner can read.

    orchid kubeconfig refresh FILE    renew the CA bundle in a kubeconfig (kubeconfig_refresh.py)
"""

import argparse
import base64
import shutil
from pathlib import Path
from urllib.parse import urlsplit

from orchid.features.accounts.commands import token
from orchid.features.sign_in.commands import whoami
from orchid.kernel.base import helper_process
from orchid.kernel.terminal import times
from orchid.kernel.terminal.connection import Json, ServerConnection, add_flags, connect
from orchid.kernel.terminal.flags import (
    add_certificate_and_key,
    add_lifetime,
    add_secret_out,
    print_or_write,
)
from orchid.kernel.terminal.objects import account_of, completed
from orchid.kernel.terminal.output import USAGE, Complaint, remark
from orchid.kernel.wire.naming import EXEC_GROUP

ADMINISTRATORS = "system:masters"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "words",
        nargs="*",
        metavar="refresh FILE",
        help="instead: renew the CA bundle in a kubeconfig, with the trust that it has",
    )
    account = parser.add_argument(
        "--account", default="", metavar="NAMESPACE/NAME", help="whose token"
    )
    completed(account, "account")
    add_lifetime(parser, "24h", "the lifetime of the token (default: that of the server, an hour)")
    add_certificate_and_key(parser, "a client certificate instead")
    parser.add_argument(
        "--exec",
        dest="is_plugin",
        action="store_true",
        help="use `orchid credential`, which gets and renews the credential",
    )
    add_secret_out(parser)
    add_flags(parser, forms=())


def run(arguments: argparse.Namespace) -> int:
    if arguments.words:
        return _refresh(arguments)
    if bool(arguments.account) == bool(arguments.cert):
        raise Complaint("either --account or --cert (with --key) is needed", USAGE)
    server = connect(arguments)
    if arguments.is_plugin:
        text = _of_plugin(arguments, server)
    else:
        text = (
            _of_account(arguments, server)
            if arguments.account
            else _of_certificate(arguments, server)
        )
    print_or_write(text, arguments.out)
    return 0


def _refresh(arguments: argparse.Namespace) -> int:
    from orchid.features.certificates.commands.kubeconfig_refresh import refresh

    if arguments.words[0] != "refresh" or len(arguments.words) != 2:  # noqa: PLR2004 -- a verb and a file
        raise Complaint("did you mean: orchid kubeconfig refresh FILE?", USAGE)
    if arguments.account or arguments.cert or arguments.out or arguments.is_plugin:
        raise Complaint("refresh renews the bundle alone: no --account, --cert, --out", USAGE)
    return refresh(Path(arguments.words[1]), arguments.context)


def _of_account(arguments: argparse.Namespace, server: ServerConnection) -> str:
    if arguments.key:
        raise Complaint("--key goes with --cert", USAGE)
    namespace, name = account_of(arguments.account, server.access.namespace)
    answer = token.request(server, namespace, name, audiences=[], seconds=arguments.lifetime)
    expires = times.parse(answer["status"].get("expirationTimestamp"))
    if expires is not None:
        remark(f"the token expires {times.until(expires)}")
    credential = {"token": answer["status"]["token"]}
    return document(server, f"{namespace}/{name}", credential, namespace)


def _of_certificate(arguments: argparse.Namespace, server: ServerConnection) -> str:
    from orchid.kernel.credentials import files, keys
    from orchid.kernel.credentials.refusals import Refusal
    from orchid.kernel.credentials.x509 import certificates

    if arguments.key is None or arguments.lifetime is not None:
        raise Complaint(
            "--cert needs --key; --for does not apply: a certificate has its own expiry", USAGE
        )
    try:
        certificate, key = files.read_bounded(arguments.cert), files.read_private(arguments.key)
        leaf, *_ = certificates.parse_blocks(certificate)
        private = keys.read_private_key(key, str(arguments.key))
    except Refusal as refusal:
        raise Complaint(str(refusal), USAGE) from None
    if leaf.public_key() != private.public_key():
        raise Complaint(f"{arguments.key} is not the key of {arguments.cert}", USAGE)
    credential = {"client-certificate-data": _b64(certificate), "client-key-data": _b64(key)}
    return document(server, arguments.cert.stem, credential, server.access.namespace)


def _of_plugin(options: argparse.Namespace, server: ServerConnection) -> str:
    """A user with a plugin: clients run `orchid credential`."""
    if options.account:
        namespace, name = account_of(options.account, server.access.namespace)
        user, words = f"{namespace}/{name}", _account_words(options, server, f"{namespace}/{name}")
    else:
        namespace, user = server.access.namespace, options.cert.stem
        words = _certificate_words(options, server)
    program, *arguments = _our_command()
    plugin = {
        "apiVersion": f"{EXEC_GROUP}/v1",
        "command": program,
        "args": [*arguments, "credential", *words],
        "interactiveMode": "Never",
    }
    return document(server, user, {"exec": plugin}, namespace)


def _account_words(
    arguments: argparse.Namespace, server: ServerConnection, account: str
) -> list[str]:
    """The plugin requests tokens of the account with our current kubeconfig."""
    if len(server.files) != 1:
        raise Complaint("--exec needs one kubeconfig: name it with --kubeconfig", USAGE)
    (file,) = server.files
    if ADMINISTRATORS in (whoami.user_of(whoami.ask(server)).get("groups") or ()):
        raise Complaint(
            f"{file} is an administrator's, and every client of the new kubeconfig would use it. "
            "Name one that may only request tokens of this account with --kubeconfig, or leave out "
            "--exec",
            USAGE,
        )
    words = ["--kubeconfig", str(file.resolve()), "--account", account]
    if arguments.context:
        words += ["--context", arguments.context]
    if arguments.lifetime is not None:
        words += ["--for", f"{arguments.lifetime}s"]
    return words


def _certificate_words(arguments: argparse.Namespace, server: ServerConnection) -> list[str]:
    """The plugin uses the new kubeconfig itself, and renews the certificate with its own key."""
    from orchid.features.certificates.commands import requesting

    if arguments.key is None:
        raise Complaint("--cert needs --key", USAGE)
    if arguments.out is None:
        raise Complaint("--exec with --cert needs --out: the plugin reads that file", USAGE)
    renewal = requesting.renewal_of(server, arguments.cert)
    return [
        *("--kubeconfig", str(arguments.out.resolve())),
        *("--cert", str(arguments.cert.resolve()), "--key", str(arguments.key.resolve())),
        *("--signer", renewal.signer),
    ]


def _our_command() -> list[str]:
    """The command line of this program, valid in every directory.

    A relative entry of PATH would yield a path that means another file in each directory.
    """
    installed = shutil.which("orchid")
    if installed is not None and Path(installed).is_absolute():
        return [installed]
    return helper_process.command("orchid")


def document(server: ServerConnection, user: str, credential: Json, namespace: str) -> str:
    """A kubeconfig with one cluster, one user and one context."""
    from orchid.kernel.wire.codec import yaml_text

    access = server.access
    cluster: Json = {"server": access.server}
    if access.authority:
        cluster["certificate-authority-data"] = _b64(access.authority)
    if access.server_name:
        cluster["tls-server-name"] = access.server_name
    address = urlsplit(access.server).netloc
    name = f"{user}@{address}"
    context = {"cluster": address, "user": user}
    if namespace:
        context["namespace"] = namespace
    return yaml_text.dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": address, "cluster": cluster}],
            "users": [{"name": user, "user": credential}],
            "contexts": [{"name": name, "context": context}],
            "current-context": name,
        }
    ).decode()


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode()
