"""`orchid token`: get a token of an account, or decode one.

`orchid token NAMESPACE/ACCOUNT` prints the token alone on standard output, ready for a pipe, or
writes it with --out to a file that only its owner can read.
`orchid token show` decodes one without verifying it, and the output says so. With --verify the
server checks it by TokenReview, for the audiences of the token itself, or of the server if the
token is of an outside issuer.
`orchid token review` reads a token from each line of standard input and prints a line for each: its
number, yes or no, the user, and the reason for a refusal. It exits with 1 if one is refused.
`orchid token exchange` exchanges a token of a CI job: see token_exchange.py.
"""

import argparse
import base64
import binascii
import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from orchid.features.accounts.commands import token_exchange
from orchid.features.sign_in.commands.whoami import described
from orchid.kernel.terminal import times
from orchid.kernel.terminal.connection import (
    CommandRefused,
    Json,
    ServerConnection,
    add_flags,
    connect,
    path,
)
from orchid.kernel.terminal.flags import add_lifetime, add_secret_out, print_or_write
from orchid.kernel.terminal.objects import account_of, completed
from orchid.kernel.terminal.output import (
    REFUSED,
    USAGE,
    Cell,
    Complaint,
    facts,
    print_for_programs,
    remark,
    table,
)

LARGEST = 64 << 10
SHORTEST, LONG = 600, 30 * 86_400  # seconds of a token: the server refuses, we warn
MOST_IN_BATCH, LARGEST_BATCH = 1_000, 1 << 20
LARGEST_INPUT = 64 << 20  # characters of all tokens of a review
_BOUND_KINDS = {"pod": "Pod", "secret": "Secret", "node": "Node"}
_MOMENTS = {"exp": "Expires", "iat": "Issued", "nbf": "Not before"}
_JWT_PARTS = 3
NOT_RECOGNIZED = "invalid bearer token"  # the error of a review without a further reason


def configure(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "orchid token NAMESPACE/ACCOUNT [--audience URL]... [--for 1h] [--bound-to KIND/NAME]\n"
        "       orchid token show [TOKEN|-] [--verify] [--audience URL]...\n"
        "       orchid token review [--audience URL]... < FILE with a token a line\n"
        "       orchid token exchange --account NAMESPACE/NAME [--audience URL]... < FILE"
    )
    target = parser.add_argument(
        "target",
        metavar="NAMESPACE/ACCOUNT|show|review|exchange",
        help="the account, or show, review or exchange",
    )
    completed(target, "account", "show", "review", "exchange")
    parser.add_argument(
        "token", nargs="?", help="show: the token; '-', or nothing, reads it from standard input"
    )
    parser.add_argument(
        "--audience",
        action="append",
        default=[],
        metavar="URL",
        help="an audience of the token (default: the server itself); may be repeated",
    )
    add_lifetime(parser, "1h", "its lifetime")
    parser.add_argument(
        "--bound-to",
        type=bound_object,
        metavar="KIND/NAME",
        help="pod/NAME, secret/NAME or node/NAME: deleting that object invalidates the token",
    )
    parser.add_argument("--verify", action="store_true", help="show: have the server verify it")
    add_secret_out(parser)
    token_exchange.add_arguments(parser)
    add_flags(parser)


def run(arguments: argparse.Namespace) -> int:
    if arguments.out is not None and arguments.target in ("show", "review", "exchange"):
        raise Complaint("--out is for the token of an account", USAGE)
    if arguments.target == "show":
        return _show(arguments)
    if arguments.target == "exchange":
        return token_exchange.run(arguments)
    token_exchange.refuse_flags(arguments)
    if arguments.token is not None or arguments.verify:
        raise Complaint("a token can be given, and --verify asked for, with `show` alone", USAGE)
    if arguments.target == "review":
        return _review(arguments)
    return _request(arguments)


# -- get -----------------------------------------------------------------------------------


def _request(arguments: argparse.Namespace) -> int:
    if arguments.lifetime is not None and arguments.lifetime < SHORTEST:
        raise Complaint("--for: a token lasts at least 10m", USAGE)
    server = connect(arguments)
    namespace, name = account_of(arguments.target, server.access.namespace)
    answer = request(
        server,
        namespace,
        name,
        audiences=arguments.audience,
        seconds=arguments.lifetime,
        bound=arguments.bound_to,
    )
    if arguments.lifetime is not None and arguments.lifetime > LONG and arguments.bound_to is None:
        remark(
            f"a token for {times.span(arguments.lifetime)} is of use to whom it leaks until it is "
            f"revoked: orchid revoke account/{namespace}/{name}"
        )
    if print_for_programs(arguments.output, answer):
        return 0
    print_or_write(answer["status"]["token"] + "\n", arguments.out)
    expires = times.parse(answer["status"].get("expirationTimestamp"))
    if expires is not None and sys.stdout.isatty():
        remark(f"expires {times.until(expires)}")
    return 0


def request(
    server: ServerConnection,
    namespace: str,
    name: str,
    *,
    audiences: list[str],
    seconds: int | None = None,
    bound: Json | None = None,
) -> Json:
    """Request a token; return the TokenRequest of the server."""
    spec: Json = {}
    if audiences:
        spec["audiences"] = audiences
    if seconds is not None:
        spec["expirationSeconds"] = seconds
    if bound is not None:
        spec["boundObjectRef"] = bound
    body = {
        "apiVersion": server.api_version("authentication", "v1"),
        "kind": "TokenRequest",
        "spec": spec,
    }
    url = path("api", "v1", "namespaces", namespace, "serviceaccounts", name, "token")
    try:
        return server.post(url, body)
    except CommandRefused as refused:
        text = f"{namespace}/{name}: {refused}"
        raise CommandRefused(refused.status, text, refused.about) from None


def bound_object(text: str) -> Json:
    """A reference to the bound object of a token; for argparse."""
    word, _, name = text.partition("/")
    kind = _BOUND_KINDS.get(word.lower())
    if kind is None or not name or "/" in name:
        raise argparse.ArgumentTypeError(f"{text!r} is not pod/NAME, secret/NAME or node/NAME")
    return {"kind": kind, "apiVersion": "v1", "name": name}


# -- show ----------------------------------------------------------------------------------


def _show(arguments: argparse.Namespace) -> int:
    if arguments.lifetime is not None or arguments.bound_to is not None:
        raise Complaint("--for and --bound-to go with NAMESPACE/ACCOUNT, not with show", USAGE)
    token = given_token(arguments.token)
    header, claims = decode(token)
    review: Json | None = None
    if arguments.verify:
        review = _verified(connect(arguments), token, arguments.audience, claims)
    good = review is None or review.get("authenticated") is True
    verified = None if review is None else good
    report = {"header": header, "claims": claims, "verified": verified, "review": review}
    if not print_for_programs(arguments.output, report):
        facts([*_verdict(review), *_described(header, claims)])
    return 0 if good else REFUSED


def given_token(argument: str | None) -> str:
    """The token from the command line or, better, from standard input."""
    if argument is None and sys.stdin.isatty():
        raise Complaint("no token: give one, or '-' to read it from standard input", USAGE)
    text = sys.stdin.read(LARGEST + 1) if argument in (None, "-") else argument or ""
    if len(text) > LARGEST:
        raise Complaint("that is too long for a token", USAGE)
    token = text.strip()
    if not token:
        raise Complaint("no token: standard input is empty", USAGE)
    return token


def decode(token: str) -> tuple[Json, Json]:
    """Header and claims, not verified."""
    parts = token.split(".")
    if len(parts) != _JWT_PARTS:
        raise Complaint("that is not a JSON web token: it does not have three parts", USAGE)
    try:
        header, claims = (_part(part) for part in parts[:2])
    except (ValueError, binascii.Error, RecursionError):
        raise Complaint("that is not a JSON web token: a part is not readable", USAGE) from None
    return header, claims


def _part(text: str) -> Json:
    value = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    if not isinstance(value, dict):
        raise ValueError("not an object")
    return value


def audiences_of(claims: Json) -> list[str]:
    found = claims.get("aud")
    listed = found if isinstance(found, list) else [found]
    return [each for each in listed if isinstance(each, str)]


def _verified(server: ServerConnection, token: str, audiences: list[str], claims: Json) -> Json:
    """The review for some audiences, by default those of the token or of the server.

    The server's configuration has the audience of an outside token, as a part of its issuer. A
    review for that audience is about tokens of accounts, so no authenticator recognizes the token.
    """
    review = verify(server, token, audiences or audiences_of(claims))
    if not audiences and review.get("error") == NOT_RECOGNIZED:
        return verify(server, token, [])
    return review


def verify(server: ServerConnection, token: str, audiences: list[str]) -> Json:
    """The status of a TokenReview by the server."""
    body = {
        "apiVersion": server.api_version("authentication", "v1"),
        "kind": "TokenReview",
        "spec": {"token": token, "audiences": audiences},
    }
    answer = server.post(server.group("authentication", "v1", "tokenreviews"), body)
    status: Json = answer.get("status", {})
    return status


def _review(arguments: argparse.Namespace) -> int:
    """Review the tokens of standard input, a batch of them in a call."""
    if arguments.lifetime is not None or arguments.bound_to is not None:
        raise Complaint("--for and --bound-to go with NAMESPACE/ACCOUNT, not with review", USAGE)
    if sys.stdin.isatty():
        raise Complaint("no tokens: give a file with a token a line on standard input", USAGE)
    text = sys.stdin.read(LARGEST_INPUT + 1)
    if len(text) > LARGEST_INPUT:
        raise Complaint(f"more than {LARGEST_INPUT >> 20} MiB of tokens: review a part", USAGE)
    tokens = [line.strip() for line in text.splitlines() if line.strip()]
    if not tokens:
        raise Complaint("no tokens: standard input is empty", USAGE)
    server = connect(arguments)
    results = [
        review for batch in _batches(tokens) for review in _reviewed(server, batch, arguments)
    ]
    if not print_for_programs(arguments.output, results):
        rows = [[str(number), *_cells(review)] for number, review in enumerate(results, start=1)]
        table(("LINE", "VALID", "USER", "REASON"), rows, empty="")
    return 0 if all(review.get("authenticated") for review in results) else REFUSED


def _batches(tokens: list[str]) -> Iterator[list[str]]:
    """As many tokens in each as one request may have, by number and by size."""
    batch: list[str] = []
    size = 0
    for token in tokens:
        if len(batch) == MOST_IN_BATCH or size + len(token) > LARGEST_BATCH:
            yield batch
            batch, size = [], 0
        batch.append(token)
        size += len(token)
    yield batch


def _reviewed(
    server: ServerConnection, tokens: list[str], arguments: argparse.Namespace
) -> list[Json]:
    body = {
        "apiVersion": f"{server.naming.identity}/v1beta1",
        "kind": "TokenReviewBatch",
        "spec": {"tokens": tokens, "audiences": arguments.audience},
    }
    url = path("apis", server.naming.identity, "v1beta1", "tokenreviewbatches")
    results: list[Json] = server.post(url, body)["status"]["results"]
    return results


def _cells(one: Json) -> list[Cell | str]:
    is_valid = one.get("authenticated") is True
    valid = Cell("yes", "good") if is_valid else Cell("no", "bad")
    return [valid, one.get("user", {}).get("username", ""), one.get("error", "")]


def _verdict(review: Json | None) -> list[tuple[str, Any]]:
    if review is None:
        note = "NO, only decoded: anybody could have written this; --verify asks the server"
        return [("Verified", Cell(note, "waiting"))]
    if review.get("authenticated") is not True:
        return [("Verified", Cell(f"REFUSED: {review.get('error', 'no reason given')}", "bad"))]
    return [
        ("Verified", Cell("yes, by the server", "good")),
        *described(review.get("user", {})),
        ("Good for", review.get("audiences") or ["the server itself"]),
    ]


def _described(header: Json, claims: Json) -> list[tuple[str, Any]]:
    pairs: list[tuple[str, Any]] = [
        ("Algorithm", header.get("alg", "")),
        ("Key", header.get("kid", "")),
        ("Issuer", claims.get("iss", "")),
        ("Subject", claims.get("sub", "")),
        ("Audiences", audiences_of(claims) or ["none"]),
    ]
    pairs += [(title, _moment(claims[name])) for name, title in _MOMENTS.items() if name in claims]
    for name, value in claims.items():
        if name not in ("iss", "sub", "aud", *_MOMENTS):
            shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            pairs.append((name, shown))
    return pairs


def _moment(value: object) -> Cell:
    try:
        moment = datetime.fromtimestamp(float(str(value)), UTC)
    except (ValueError, OverflowError, OSError):
        return Cell(value)
    return Cell(times.until(moment))
