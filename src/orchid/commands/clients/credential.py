"""`orchid credential`: an exec plugin with a credential that renews itself.

A kubeconfig has it as a user's `exec` command (`orchid kubeconfig --exec` writes one); the client
runs it, and again when the credential expires. It prints an ExecCredential with

    --account NAMESPACE/NAME      a token of that account, requested with --kubeconfig, or
    --cert FILE --key FILE        that certificate; in the last third of its lifetime it is renewed
                                  first: requested again, waited for, and written in its place

A renewal is requested as the user of --kubeconfig; where that user has no credential but this
plugin, with the certificate itself. Nothing is cached but the certificate's own files. A failed
renewal is reported on standard error, and the certificate is used while it is valid.
"""

import argparse
import datetime
import json
import os

from cryptography import x509

from orchid.features.accounts.commands import token
from orchid.features.certificates.commands import requesting
from orchid.features.certificates.commands.responses import certificate_of, wait_for
from orchid.kernel.credentials import files
from orchid.kernel.credentials.refusals import Refusal
from orchid.kernel.credentials.secret import SecretValue
from orchid.kernel.terminal import times
from orchid.kernel.terminal.connection import Json, add_flags, connect
from orchid.kernel.terminal.flags import add_certificate_and_key, add_duration, add_lifetime
from orchid.kernel.terminal.objects import account_of, completed
from orchid.kernel.terminal.output import USAGE, Complaint, remark, say
from orchid.kernel.wire.naming import EXEC_GROUP, EXEC_INFO

VERSIONS = ("v1", "v1beta1")
WAIT = 10
LEFT = 1 / 3  # of its lifetime, when a certificate is renewed


def configure(parser: argparse.ArgumentParser) -> None:
    account = parser.add_argument("--account", default="", metavar="NAMESPACE/NAME", help="whose")
    completed(account, "account")
    add_lifetime(parser, "1h", "the lifetime of a token")
    add_certificate_and_key(parser, "a certificate instead")
    parser.add_argument(
        "--signer", default="", help="the signer (default: that of the certificate)"
    )
    add_duration(parser, "--wait", "10s", "for a renewal", default=WAIT)
    add_flags(parser, forms=())


def run(arguments: argparse.Namespace) -> int:
    version = asked_version(os.environ.get(EXEC_INFO, ""))
    if bool(arguments.account) == bool(arguments.cert) or bool(arguments.cert) != bool(
        arguments.key
    ):
        raise Complaint("either --account, or --cert and --key, is needed", USAGE)
    status = _of_account(arguments) if arguments.account else _of_certificate(arguments)
    credential = {
        "apiVersion": f"{EXEC_GROUP}/{version}",
        "kind": "ExecCredential",
        "status": status,
    }
    say(json.dumps(credential))
    return 0


def asked_version(text: str) -> str:
    """The version that the client requests; the newest by default."""
    try:
        group, _, version = (
            str(json.loads(text)["apiVersion"]).partition("/") if text else ("", "", "")
        )
    except (ValueError, KeyError, TypeError):
        raise Complaint(f"${EXEC_INFO} is not an ExecCredential", USAGE) from None
    if text and (group != EXEC_GROUP or version not in VERSIONS):
        raise Complaint(f"${EXEC_INFO} asks for {group}/{version}, which is not known", USAGE)
    return version or VERSIONS[0]


def _of_account(arguments: argparse.Namespace) -> Json:
    server = connect(arguments)
    namespace, name = account_of(arguments.account, server.access.namespace)
    answer = token.request(server, namespace, name, audiences=[], seconds=arguments.lifetime)
    return {
        "token": answer["status"]["token"],
        "expirationTimestamp": answer["status"].get("expirationTimestamp"),
    }


def _of_certificate(arguments: argparse.Namespace) -> Json:
    leaf = requesting.leaf_of(arguments.cert)
    if times.now() >= renewed_from(leaf):
        try:
            _renew(arguments)
        except Complaint as complaint:
            if times.now() >= leaf.not_valid_after_utc:
                raise
            remark(f"orchid: {arguments.cert} was not renewed: {complaint}")
        leaf = requesting.leaf_of(arguments.cert)
    certificate, key = _pair(arguments)
    # The client returns when the next renewal is due, not when it is too late.
    end = leaf.not_valid_after_utc
    back = renewed_from(leaf) if renewed_from(leaf) > times.now() else end
    return {
        "clientCertificateData": certificate.decode("ascii", "replace"),
        "clientKeyData": key.decode("ascii", "replace"),
        "expirationTimestamp": back.isoformat(timespec="seconds").replace("+00:00", "Z"),
    }


def renewed_from(leaf: x509.Certificate) -> datetime.datetime:
    """When a certificate is to be renewed."""
    life = leaf.not_valid_after_utc - leaf.not_valid_before_utc
    return leaf.not_valid_after_utc - life * LEFT


def _pair(arguments: argparse.Namespace) -> tuple[bytes, bytes]:
    try:
        return files.read_bounded(arguments.cert), files.read_private(arguments.key)
    except Refusal as refusal:
        raise Complaint(str(refusal), USAGE) from None


def _renew(arguments: argparse.Namespace) -> None:
    certificate, private = _pair(arguments)
    identity = certificate, SecretValue(private.decode("ascii", "replace"))
    server = connect(arguments, identity, only_for_plugin=True)
    terms = requesting.renewal_of(server, arguments.cert, arguments.signer)
    key = requesting.load_key(arguments.key)
    name = requesting.send_again(server, arguments.cert.stem, key, terms)["metadata"]["name"]
    request = wait_for(server, name, arguments.wait)
    try:
        files.rewrite(arguments.cert, certificate_of(request))
    except OSError as error:
        raise Complaint(f"cannot write {arguments.cert}: {error.strerror}") from None
