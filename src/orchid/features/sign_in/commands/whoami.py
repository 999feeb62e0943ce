"""`orchid whoami`: the user as authenticated by the server.

Uses SelfSubjectReview: the result is the user of every authorization decision.
"""

import argparse
from typing import Any

from orchid.kernel.terminal.connection import Json, ServerConnection, add_flags, connect
from orchid.kernel.terminal.output import facts, print_for_programs


def configure(parser: argparse.ArgumentParser) -> None:
    add_flags(parser)


def run(arguments: argparse.Namespace) -> int:
    server = connect(arguments)
    review = ask(server)
    if print_for_programs(arguments.output, review):
        return 0
    facts([*described(user_of(review)), ("Server", server.access.server)])
    return 0


def ask(server: ServerConnection) -> Json:
    """The review of the server."""
    body = {
        "apiVersion": server.api_version("authentication", "v1"),
        "kind": "SelfSubjectReview",
    }
    return server.post(server.group("authentication", "v1", "selfsubjectreviews"), body)


def user_of(review: Json) -> Json:
    found: Json = review.get("status", {}).get("userInfo", {})
    return found


def described(user: Json) -> list[tuple[str, Any]]:
    """The attributes of a user as pairs; empty ones are omitted."""
    pairs: list[tuple[str, Any]] = [("User", user.get("username", ""))]
    if user.get("uid"):
        pairs.append(("UID", user["uid"]))
    if user.get("groups"):
        pairs.append(("Groups", user["groups"]))
    extra = sorted((user.get("extra") or {}).items())
    if extra:
        pairs.append(("Extra", [f"{key}={value}" for key, values in extra for value in values]))
    return pairs
