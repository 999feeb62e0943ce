"""Flags of `orchid csr new` and `orchid csr renew`.

The work (requesting.py) imports the certificate libraries, which takes longer than many a command;
`orchid csr list` does without them.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

from orchid.kernel.terminal import times
from orchid.kernel.terminal.connection import ServerConnection
from orchid.kernel.terminal.flags import add_lifetime
from orchid.kernel.terminal.output import USAGE, Complaint
from orchid.kernel.wire.naming import Naming

SIGNERS: dict[str, Callable[[Naming], str]] = {
    "client": lambda naming: naming.client_signer,
    "node-client": lambda naming: naming.node_client_signer,
    "node-serving": lambda naming: naming.node_serving_signer,
}


def new_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="name of the request, and of the key's file")
    parser.add_argument("--user", default="", help="common name of the subject (default: NAME)")
    for flag, words in (
        ("--group", "organization of the subject: a group of the user"),
        ("--dns", "host name that the certificate is for"),
        ("--ip", "address that the certificate is for"),
        ("--uri", "URI that the certificate is for"),
        ("--email", "mail address that the certificate is for"),
        ("--usage", "key usage (default: those of the signer)"),
    ):
        parser.add_argument(flag, action="append", default=[], help=f"{words}; may be repeated")
    parser.add_argument(
        "--serving",
        action="store_true",
        help="for a server, known by --dns and --ip (default signer: the only one for servers)",
    )
    parser.add_argument(
        "--signer",
        default="",
        help=f"{', '.join(SIGNERS)}, or a full name like example.com/signer (default: client)",
    )
    add_lifetime(parser, "24h", "the requested lifetime")
    parser.add_argument(
        "--key", type=Path, metavar="FILE", help="use this key instead of creating NAME.key"
    )


def renew_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="renews NAME.crt")
    parser.add_argument("--cert", type=Path, metavar="FILE", help="renew this one instead")
    parser.add_argument("--key", type=Path, metavar="FILE", help="its key (default: NAME.key)")
    parser.add_argument(
        "--signer",
        default="",
        help="the signer (default: that of the certificate, from the inventory)",
    )
    parser.add_argument(
        "--if-ends-within",
        type=times.duration_of,
        metavar="30d",
        help="only if it ends by then, for a command that is run every day",
    )
    parser.add_argument(
        "--wait",
        type=times.duration_of,
        metavar="1m",
        help="wait so long for the new certificate, and write it in place of the old one",
    )
    parser.add_argument(
        "--exec",
        dest="command",
        default="",
        metavar="COMMAND",
        help="run this when the new certificate is written, as 'systemctl reload nginx'; waits",
    )


def url(server: ServerConnection, *parts: str) -> str:
    return server.group("certificates", "v1", "certificatesigningrequests", *parts)


def file_name(name: str) -> str:
    if "/" in name or name in ("", ".", "..") or name.startswith("-") or "\0" in name:
        raise Complaint(f"{name!r} cannot be the name of a request", USAGE)
    return name
