"""`orchid token exchange`: exchange a token of a CI job for a token of an account (RFC 8693).

    orchid token exchange --account NAMESPACE/NAME --audience URL < outside.jwt
    --from FILE | --github | --gitlab [VARIABLE]    the outside token: a file, or the job's own
    --server URL --certificate-authority FILE       the server, where there is no kubeconfig
    --explain                                       why policies allow it, or do not; no token

The exchange sends no credential but the outside token; --explain uses that of the kubeconfig. Run
by a client as a credential plugin, the command prints an ExecCredential.
"""

import argparse
import http.client
import json
import os
import sys
from datetime import timedelta
from pathlib import Path
from urllib.parse import quote, urlencode, urlsplit

from orchid.kernel.credentials.files import read_bounded
from orchid.kernel.credentials.refusals import Refusal
from orchid.kernel.outbound import tls
from orchid.kernel.outbound.kubeconfig import ServerAccess
from orchid.kernel.terminal import kubeconfig_file, times
from orchid.kernel.terminal.connection import (
    UNAUTHORIZED,
    CommandRefused,
    Json,
    ServerConnection,
    connect,
    path,
)
from orchid.kernel.terminal.kubeconfig_file import SERVER_FLAG, FoundKubeconfig
from orchid.kernel.terminal.output import (
    REFUSED,
    USAGE,
    Cell,
    Complaint,
    print_for_programs,
    say,
    table,
)
from orchid.kernel.wire.naming import EXEC_GROUP, EXEC_INFO, EXPIRES_PARAMETER
from orchid.kernel.wire.text import timestamp

LARGEST = 64 << 10
URL, SECRET = "ACTIONS_ID_TOKEN_REQUEST_URL", "ACTIONS_ID_TOKEN_REQUEST_TOKEN"  # of GitHub
VARIABLE = "ORCHID_ID_TOKEN"  # of GitLab, by default
GRANT = "urn:ietf:params:oauth:grant-type:token-exchange"
TYPE = "urn:ietf:params:oauth:token-type:jwt"
OK, HTTPS = 200, 443
TIMEOUT = 30.0  # seconds
METADATA = "/.well-known/oauth-authorization-server"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("exchange")
    group.add_argument("--account", default="", metavar="NAMESPACE/NAME", help="the account")
    group.add_argument("--from", dest="source", type=Path, metavar="FILE", help="the outside token")
    group.add_argument("--github", action="store_true", help="get it from GitHub Actions")
    group.add_argument(
        "--gitlab", nargs="?", const=VARIABLE, metavar="VARIABLE",
        help=f"take it from a variable of a GitLab job (default: {VARIABLE})",
    )  # fmt: skip
    group.add_argument(
        "--outside-audience", default="", metavar="URL",
        help="with --github: the audience of the outside token (default: the URL of the server)",
    )  # fmt: skip
    group.add_argument("--server", default="", metavar="URL", help="instead of a kubeconfig")
    group.add_argument(
        "--certificate-authority", type=Path, metavar="FILE", help="with --server: its CAs"
    )
    group.add_argument("--explain", action="store_true", help="show why; issue no token")


def run(arguments: argparse.Namespace) -> int:
    if arguments.token is not None or arguments.verify or arguments.bound_to is not None:
        raise Complaint("exchange takes neither TOKEN nor --verify nor --bound-to", USAGE)
    if sum((arguments.source is not None, arguments.github, arguments.gitlab is not None)) > 1:
        raise Complaint("--from, --github and --gitlab exclude each other", USAGE)
    if arguments.explain:
        return _explain(arguments)
    server = _anonymous(arguments)
    answer = _exchanged(server, _url(arguments), _form(arguments, server))
    if os.environ.get(EXEC_INFO):
        say(json.dumps(_credential(answer)))
    elif not print_for_programs(arguments.output, answer):
        say(answer["access_token"])
    return 0


def refuse_flags(arguments: argparse.Namespace) -> None:
    """Refuse flags of the exchange with another action."""
    values = (
        arguments.account,
        arguments.source,
        arguments.github,
        arguments.gitlab,
        arguments.explain,
    )
    if (
        any(values)
        or arguments.server
        or arguments.certificate_authority
        or arguments.outside_audience
    ):
        raise Complaint("that flag goes with `orchid token exchange` alone", USAGE)


# -- the exchange ----------------------------------------------------------------------------------


def _exchanged(server: ServerConnection, url: str, form: list[tuple[str, str]]) -> Json:
    try:
        return server.post_form(url, form)
    except CommandRefused as refusal:
        if refusal.status == UNAUTHORIZED:  # the path is open to all where exchange is on
            text = "does not exchange tokens: it was started without --token-exchange-config"
            raise CommandRefused(refusal.status, f"{server.access.server} {text}") from None
        raise


def _url(arguments: argparse.Namespace) -> str:
    if not arguments.account:
        return "/oauth2/token"
    return f"/oauth2/token?account={quote('/'.join(_account(arguments)), safe='/')}"


def _account(arguments: argparse.Namespace) -> tuple[str, str]:
    namespace, slash, name = arguments.account.partition("/")
    if not slash or not namespace or not name or "/" in name:
        raise Complaint(f"--account: {arguments.account!r} is not NAMESPACE/NAME", USAGE)
    return namespace, name


def _form(arguments: argparse.Namespace, server: ServerConnection) -> list[tuple[str, str]]:
    fields = [
        ("grant_type", GRANT),
        ("subject_token_type", TYPE),
        ("subject_token", _outside_token(arguments, server.access.server)),
        *(("audience", audience) for audience in arguments.audience or _own_audience(server)),
    ]
    if arguments.lifetime is not None:
        fields.append((EXPIRES_PARAMETER, str(int(arguments.lifetime))))
    return fields


def _own_audience(server: ServerConnection) -> list[str]:
    """The audience of the API, for a client of the API that runs this command as its plugin.

    Without an audience the token would be for the first one of the policy.
    """
    if not os.environ.get(EXEC_INFO):
        return []
    try:
        return [str(server.get(METADATA)["issuer"])]
    except (CommandRefused, KeyError):
        return []


def _anonymous(arguments: argparse.Namespace) -> ServerConnection:
    """A connection without a credential: the server by its flags, or of a kubeconfig."""
    if not arguments.server:
        kubeconfig = kubeconfig_file.find(arguments.kubeconfig, os.environ)
        configured = kubeconfig_file.load(kubeconfig, arguments.context)
        access = ServerAccess(
            server=configured.server,
            authority=configured.authority,
            server_name=configured.server_name,
            insecure=configured.insecure,
        )
        return ServerConnection(access, kubeconfig)
    authority = b""
    if arguments.certificate_authority is not None:
        try:
            authority = read_bounded(arguments.certificate_authority)
        except Refusal as refusal:
            raise Complaint(f"--certificate-authority: {refusal}", USAGE) from None
    return ServerConnection(
        ServerAccess(server=arguments.server, authority=authority), FoundKubeconfig((), SERVER_FLAG)
    )


def _credential(answer: Json) -> Json:
    """The token for a client that runs this command as a plugin."""
    try:
        version = str(json.loads(os.environ[EXEC_INFO])["apiVersion"])
    except (ValueError, KeyError, TypeError):
        raise Complaint(f"${EXEC_INFO} is not an ExecCredential", USAGE) from None
    if not version.startswith(f"{EXEC_GROUP}/"):
        raise Complaint(f"${EXEC_INFO} asks for {version}, which is not known", USAGE)
    expires = times.now() + timedelta(seconds=int(answer["expires_in"]))
    status = {"token": answer["access_token"], "expirationTimestamp": timestamp(expires)}
    return {"apiVersion": version, "kind": "ExecCredential", "status": status}


# -- the outside token -----------------------------------------------------------------------------


def _outside_token(arguments: argparse.Namespace, server: str) -> str:
    if arguments.github:
        return _of_github(arguments.outside_audience or server)
    if arguments.gitlab is not None:
        job_token = os.environ.get(arguments.gitlab, "")
        if not job_token:
            raise Complaint(
                f"${arguments.gitlab} is not set: add it to id_tokens of the job", USAGE
            )
        return job_token
    if arguments.source is not None:
        try:
            text = read_bounded(arguments.source, LARGEST).decode("utf-8", "replace")
        except Refusal as refusal:
            raise Complaint(f"--from: {refusal}", USAGE) from None
    else:
        text = "" if sys.stdin.isatty() else sys.stdin.read(LARGEST + 1)
    token = text.strip()
    if len(text) > LARGEST:
        raise Complaint("that is too long for a token", USAGE)
    if not token:
        raise Complaint("no token: use --from, --github or --gitlab, or standard input", USAGE)
    return token


def _of_github(audience: str) -> str:
    """The token of this job (permissions: id-token: write)."""
    url, secret = os.environ.get(URL, ""), os.environ.get(SECRET, "")
    try:
        parts = urlsplit(url)
        port = parts.port or HTTPS
    except ValueError:
        raise Complaint(f"${URL} is not a URL", USAGE) from None
    if parts.scheme != "https" or not parts.hostname or not secret:
        text = f"${URL} is not set: the job needs the permission `id-token: write`"
        raise Complaint(text, USAGE)
    query = "&".join(filter(None, (parts.query, urlencode({"audience": audience}))))
    connection = http.client.HTTPSConnection(
        parts.hostname, port, context=tls.trusting(""), timeout=TIMEOUT
    )
    try:
        headers = {"Authorization": f"Bearer {secret}", "Accept": "application/json"}
        connection.request("GET", f"{parts.path}?{query}", headers=headers)
        answer = connection.getresponse()
        body = json.loads(answer.read(LARGEST))
    except (OSError, http.client.HTTPException, ValueError) as failure:
        why = str(failure) if isinstance(failure, OSError) else "its answer is malformed"
        raise Complaint(f"no token from GitHub at {parts.hostname}: {why}") from None
    finally:
        connection.close()
    value = body.get("value") if isinstance(body, dict) else None
    if answer.status != OK or not isinstance(value, str):
        raise Complaint(f"GitHub answered with status {answer.status} and no token")
    return value


# -- explanations ----------------------------------------------------------------------------------


def _explain(arguments: argparse.Namespace) -> int:
    if not arguments.account:
        raise Complaint("--explain needs --account, whose namespace has the policies", USAGE)
    namespace, name = _account(arguments)
    server = connect(arguments)
    identity = server.naming.identity
    body = {
        "apiVersion": f"{identity}/v1alpha1",
        "kind": "TokenExchangeReview",
        "spec": {
            "token": _outside_token(arguments, server.access.server),
            "account": name,
            "audiences": [*arguments.audience],
        },
    }
    url = path("apis", identity, "v1alpha1", "namespaces", namespace, "tokenexchangereviews")
    status: Json = server.post(url, body)["status"]
    if not print_for_programs(arguments.output, status):
        _show(status)
    return 0 if status["allowed"] else REFUSED


def _show(status: Json) -> None:
    if status.get("message"):
        say(status["message"])
    rows = [
        [
            policy["name"],
            check["field"],
            Cell("yes", "good") if check["allowed"] else Cell("no", "bad"),
            check.get("wanted", ""),
            check.get("seen", ""),
            check.get("message", ""),
        ]
        for policy in status.get("policies", ())
        for check in policy["checks"]
    ]
    if rows:
        table(("POLICY", "CHECK", "ALLOWED", "WANTED", "SEEN", "MESSAGE"), rows, empty="")
