"""`orchid acme key`: let ACME clients get certificates as a service account.

    orchid acme key web/frontend --authority servers

It creates an external account key, lets the account create certificate requests, and prints the
lines for some clients. The client uses the key once, to create its own account; docs/acme.md
describes the rest. The names that the account gets are those that a policy or a person approves.
"""

import argparse
import secrets
import string

from orchid.features.authorities.commands import ca
from orchid.features.rights.commands import grants
from orchid.kernel.terminal import times
from orchid.kernel.terminal.connection import Json, ServerConnection, path
from orchid.kernel.terminal.objects import account_of, completed
from orchid.kernel.terminal.output import Complaint, print_for_programs, remark, say
from orchid.kernel.terminal.subcommands import add_subcommands, run_subcommand

WEEK = 7 * 86_400
KEY_BYTES = 32
LONGEST_PART = 63  # characters of the account in the name of a Secret
ROLE = "acme-requester"
LETTERS = string.ascii_lowercase + string.digits


def configure(parser: argparse.ArgumentParser) -> None:
    add_subcommands(
        parser,
        (("key", "let ACME clients get certificates as an account", _key_arguments, _key),),
    )


run = run_subcommand


def _key_arguments(parser: argparse.ArgumentParser) -> None:
    completed(parser.add_argument("account", metavar="NAMESPACE/NAME"), "account")
    completed(
        parser.add_argument(
            "--authority",
            default="",
            metavar="NAME",
            help="the authority (default: the only one with ACME)",
        ),
        "authority",
    )
    parser.add_argument(
        "--for",
        dest="lifetime",
        type=times.duration_of,
        default=WEEK,
        metavar="168h",
        help="how long clients can create accounts with the key (default: 168h)",
    )


def _key(arguments: argparse.Namespace, server: ServerConnection) -> int:
    namespace, name = account_of(arguments.account, server.access.namespace)
    directory = _directory(server, _authority(server, arguments.authority))
    account = server.get(path("api", "v1", "namespaces", namespace, "serviceaccounts", name))
    grants.grant(server, ROLE, grants.account(namespace, name), "")
    kid, key = _create(server, account, arguments.lifetime)
    credential = {"server": directory, "kid": kid, "hmacKey": key, "account": f"{namespace}/{name}"}
    if print_for_programs(arguments.output, credential):
        return 0
    remark(
        f"clients can create accounts for {namespace}/{name} with this key for "
        f"{times.span(arguments.lifetime)}; ca.crt is the CA of this server"
    )
    say(lines(directory, kid, key))
    return 0


def lines(directory: str, kid: str, key: str) -> str:
    """Commands and configuration for ACME clients."""
    return f"""\
# certbot
REQUESTS_CA_BUNDLE=ca.crt certbot certonly --standalone --agree-tos \\
  --register-unsafely-without-email --server {directory} \\
  --eab-kid {kid} --eab-hmac-key {key} -d NAME

# lego
LEGO_CA_CERTIFICATES=ca.crt lego --accept-tos --email admin@example.com --http \\
  --server {directory} --eab --kid {kid} --hmac {key} -d NAME run

# Caddyfile
NAME {{
  tls {{
    issuer acme {directory} {{
      eab {kid} {key}
      trusted_roots ca.crt
    }}
  }}
}}"""


def _authority(server: ServerConnection, name: str) -> str:
    if name:
        return name
    names = [
        authority["metadata"]["name"]
        for authority in server.items(ca.url(server))
        if "acme" in authority["spec"]
    ]
    if len(names) == 1:
        only: str = names[0]
        return only
    if names:
        raise Complaint(f"which authority? give --authority, one of {', '.join(sorted(names))}")
    raise Complaint("no authority has ACME: create one with orchid ca new --acme")


def _directory(server: ServerConnection, authority: str) -> str:
    """The URL of the directory, as clients reach it."""
    import json

    status, text = server.text(path("acme", authority, "directory"))
    if status != 200:  # noqa: PLR2004 -- success
        raise Complaint(f"{authority} has no ACME: set spec.acme of the authority")
    url: str = json.loads(text)["newNonce"]
    return url.removesuffix("new-nonce") + "directory"


def _create(server: ServerConnection, account: Json, seconds: int) -> tuple[str, str]:
    """Create a Secret with a new key; return its identifier and the key, in base64url."""
    import base64

    naming, meta = server.naming, account["metadata"]
    key, text = new_key()
    ending = "".join(secrets.choice(LETTERS) for _ in range(6))
    name = f"acme-{meta['name'][:LONGEST_PART].rstrip('.-')}-{ending}"
    expires = times.text_of(times.now().timestamp() + seconds)
    owner = {"apiVersion": "v1", "kind": "ServiceAccount", "name": meta["name"], "uid": meta["uid"]}
    body: Json = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": name,
            "annotations": {
                naming.account_name_annotation: meta["name"],
                naming.account_uid_annotation: meta["uid"],
            },
            "ownerReferences": [owner],
        },
        "type": f"{naming.identity}/acme-key",
        "data": {
            "key": base64.b64encode(key).decode(),
            "expiration": base64.b64encode(expires.encode()).decode(),
        },
    }
    server.post(path("api", "v1", "namespaces", meta["namespace"], "secrets"), body)
    return f"{meta['namespace']}.{name}", text


def new_key() -> tuple[bytes, str]:
    """A key, and its text in base64url, which does not begin with a dash.

    certbot and others would read such a text as the next option.
    """
    import base64

    while True:
        key = secrets.token_bytes(KEY_BYTES)
        text = base64.urlsafe_b64encode(key).rstrip(b"=").decode()
        if not text.startswith("-"):
            return key, text
