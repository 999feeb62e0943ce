"""`orchid policy`: approval policies and explanations of their decisions.

    orchid policy apply web.yaml           create or replace a policy
    orchid policy explain alice            the result of every policy for a stored request
    orchid policy test web.yaml --request alice.csr --signer example.com/web
    orchid policy test web.yaml --since 30d     its result for past decisions

The server evaluates; `test` sends a policy that is not stored. Its exit code is 0 if the policy
would approve the request and 1 if not, so that a pipeline can test policies before it applies them.
"""

import argparse
import base64
import sys
from pathlib import Path

from orchid.features.approving.commands import policy_history
from orchid.features.rights.commands import grants
from orchid.kernel.terminal import times
from orchid.kernel.terminal.asking import asks
from orchid.kernel.terminal.connection import (
    NOT_FOUND,
    CommandRefused,
    Json,
    ServerConnection,
    path,
)
from orchid.kernel.terminal.flags import (
    add_duration,
    add_lifetime,
    name_argument,
    names_argument,
    no_arguments,
)
from orchid.kernel.terminal.objects import ListColumn, completed, show_list
from orchid.kernel.terminal.output import (
    REFUSED,
    USAGE,
    Cell,
    Complaint,
    facts,
    name_of,
    print_for_programs,
    say,
    table,
)
from orchid.kernel.terminal.subcommands import add_subcommands, delete_each, run_subcommand
from orchid.kernel.wire.naming import CLIENT

KIND, VERSION = "ApprovalPolicy", "v1"
SERVED = ("v1", "v1alpha1")
LARGEST = 1 << 20
STAR = "*"
# Ignoring a misspelt selector would make the policy apply to everybody.
STRICTLY = "?fieldValidation=Strict"
MOODS = {"Approve": "good", "Deny": "bad", "Leave": "waiting"}


def configure(parser: argparse.ArgumentParser) -> None:
    add_subcommands(
        parser,
        (
            ("list", "list policies", no_arguments, _list),
            ("show", "show the terms of a policy", name_argument("policy"), _show),
            ("apply", "create or replace a policy from a file", _apply_arguments, _apply),
            ("delete", "delete policies", asks(names_argument("policy")), _delete),
            (
                "explain",
                "show the result of every policy for a request",
                _explain_arguments,
                _explain,
            ),
            ("test", "test a policy file on a request", _test_arguments, _test),
        ),
    )


run = run_subcommand


# -- list, show, apply, delete -------------------------------------------------------------


def _list(arguments: argparse.Namespace, server: ServerConnection) -> int:
    return show_list(
        arguments,
        server,
        _url(server, "approvalpolicies"),
        COLUMNS,
        empty="no policies: every request waits for a person",
    )


def _ready(policy: Json) -> Cell:
    for condition in (policy.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "Ready":
            is_ready = condition.get("status") == "True"
            return Cell("yes", "good") if is_ready else Cell("no", "bad")
    return Cell("no", "bad")


def _show(arguments: argparse.Namespace, server: ServerConnection) -> int:
    from orchid.kernel.wire.codec import yaml_text

    policy = server.get(_url(server, "approvalpolicies", arguments.name))
    if print_for_programs(arguments.output, policy):
        return 0
    plain = {
        "apiVersion": policy["apiVersion"],
        "kind": KIND,
        "metadata": {"name": arguments.name},
        "spec": policy["spec"],
    }
    say(yaml_text.dump(plain).decode().rstrip("\n"))
    return 0


def _file_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="YAML or JSON; '-' is standard input")


def _apply_arguments(parser: argparse.ArgumentParser) -> None:
    _file_argument(parser)
    parser.add_argument(
        "--for-group",
        dest="groups",
        action="append",
        default=[],
        metavar="GROUP",
        help="let this group use the policy, like system:nodes for hosts; may be repeated",
    )


def _apply(arguments: argparse.Namespace, server: ServerConnection) -> int:
    policies = _policies(arguments.file)
    names = [_name_in(arguments.file, policy) for policy in policies]
    if len(set(names)) < len(names):
        raise Complaint(f"{arguments.file}: two policies have the same name", USAGE)
    answers = []
    for name, policy in zip(names, policies, strict=True):
        done, answer = _applied(server, name, policy)
        answers.append(answer)
        if arguments.groups:
            grants.grant_use(server, name, arguments.groups)
        if arguments.output == "text":
            say(
                "\n".join(
                    [f"{done} {name}", *(f"used by group {group}" for group in arguments.groups)]
                )
            )
    print_for_programs(arguments.output, answers[0] if len(answers) == 1 else answers)
    return 0


def _applied(server: ServerConnection, name: str, policy: Json) -> tuple[str, Json]:
    """Create or replace a policy; return what was done, and the policy."""
    url = _url(server, "approvalpolicies", name)
    try:
        existing = server.get(url)
    except CommandRefused as refused:
        if refused.status != NOT_FOUND:
            raise
        target = _url(server, "approvalpolicies") + STRICTLY
        return "created", server.post(target, _current(server, policy))
    # With the version that was read, so that no concurrent change is lost.
    answer = server.put(url + STRICTLY, {**existing, "spec": policy.get("spec") or {}})
    return "replaced" if answer["spec"] != existing["spec"] else "unchanged:", answer


def _current(server: ServerConnection, policy: Json) -> Json:
    """The policy in the version that this program uses: the fields are the same in all."""
    group = server.naming.identity
    if policy.get("apiVersion") in [f"{group}/{version}" for version in SERVED]:
        return {**policy, "apiVersion": f"{group}/{VERSION}"}
    return policy


def _delete(arguments: argparse.Namespace, server: ServerConnection) -> int:
    return delete_each(
        arguments, server, lambda server, name: _url(server, "approvalpolicies", name)
    )


# -- explain and test ----------------------------------------------------------------------


def _explain_arguments(parser: argparse.ArgumentParser) -> None:
    completed(parser.add_argument("name", metavar="REQUEST", help="a stored request"), "request")
    _user_arguments(parser)


def _user_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--user", default="", help="as if this user were the requester")
    parser.add_argument(
        "--group", action="append", default=[], help="a group of that user; may be repeated"
    )


def _explain(arguments: argparse.Namespace, server: ServerConnection) -> int:
    _report(arguments, _reviewed(server, {"requestName": arguments.name, **_user(arguments)}))
    return 0


def _test_arguments(parser: argparse.ArgumentParser) -> None:
    _file_argument(parser)
    of_what = parser.add_mutually_exclusive_group(required=True)
    of_what.add_argument("--request", metavar="FILE", help="a request in PEM")
    of_past = "all decisions of this period that the server still has"
    add_duration(of_what, "--since", "30d", of_past)
    parser.add_argument("--signer", default="", help="the signer (default: the one in the policy)")
    parser.add_argument("--usage", action="append", default=[], help="a key usage; may be repeated")
    add_lifetime(parser, "24h", "the requested lifetime")
    _user_arguments(parser)


def _test(arguments: argparse.Namespace, server: ServerConnection) -> int:
    terms = _policy(arguments.file).get("spec") or {}
    if arguments.since is not None:
        return policy_history.tried(arguments, server, terms, lambda spec: _reviewed(server, spec))
    spec: Json = {
        "request": base64.b64encode(_read(arguments.request)).decode(),
        "signerName": arguments.signer or _only_signer(terms),
        "usages": arguments.usage,
        "policy": terms,
        **_user(arguments),
    }
    if arguments.lifetime is not None:
        spec["expirationSeconds"] = arguments.lifetime
    status = _reviewed(server, spec)
    _report(arguments, status)
    return 0 if status.get("outcome") == "Approve" else REFUSED


def _only_signer(terms: Json) -> str:
    names = [name for name in terms.get("signerNames") or () if STAR not in name]
    if len(names) != 1:
        raise Complaint("the policy does not name one signer alone: say which, --signer", USAGE)
    signer: str = names[0]
    return signer


def _user(arguments: argparse.Namespace) -> Json:
    if not arguments.user:
        if arguments.group:
            raise Complaint("--group goes with --user", USAGE)
        return {}
    return {"user": {"username": arguments.user, "groups": arguments.group}}


def _reviewed(server: ServerConnection, spec: Json) -> Json:
    body = {
        "apiVersion": f"{server.naming.identity}/{VERSION}",
        "kind": "ApprovalReview",
        "spec": spec,
    }
    status: Json = server.post(_url(server, "approvalreviews") + STRICTLY, body)["status"]
    return status


def _report(arguments: argparse.Namespace, status: Json) -> None:
    if print_for_programs(arguments.output, status):
        return
    outcome = status["outcome"]
    facts(
        [("Outcome", Cell(outcome, MOODS.get(outcome, ""))), ("Why", status.get("message") or "")]
    )
    rows = [row for policy in status.get("policies") or () for row in _rows(policy)]
    table(("POLICY", "CHECK", "SEEN", "VERDICT", "WHY"), rows, empty="there are no policies")


def _rows(policy: Json) -> list[tuple[object, ...]]:
    """The checks of a policy, one row each; its name is in the first row."""
    rows: list[tuple[object, ...]] = []
    if policy["selected"] and not policy["usable"]:
        rows.append(("use", "", _verdict(False), "the requester may not use this policy"))
    for check in policy.get("checks") or ():
        verdict = _verdict(check["allowed"])
        rows.append((check["field"], check.get("value", ""), verdict, check.get("message", "")))
    if not rows:
        rows.append(("", "", Cell("none", "waiting"), policy.get("message", "")))
    return [(policy["name"] if first == 0 else "", *row) for first, row in enumerate(rows)]


def _verdict(allowed: bool) -> Cell:
    return Cell("yes", "good") if allowed else Cell("no", "bad")


# -- reading -------------------------------------------------------------------------------


def _policies(name: str) -> list[Json]:
    """Every policy of a file; a file with other objects is refused."""
    from orchid.kernel.wire.codec import yaml_text

    try:
        documents = yaml_text.load_all(_read(name))
    except yaml_text.YamlError as error:
        raise Complaint(f"{name}: {error}", USAGE) from None
    if twice := [text for _, policies in documents for text in policies]:
        raise Complaint(f"{name}: {', '.join(twice)} occurs twice", USAGE)
    policies = [value for value, _ in documents]
    if len(policies) == 1 and isinstance(policies[0], dict) and policies[0].get("kind") == "List":
        policies = policies[0].get("items") or []
    kinds = [policy.get("kind") if isinstance(policy, dict) else None for policy in policies]
    if others := sorted({str(kind or "no object") for kind in kinds} - {KIND}):
        raise Complaint(
            f"{name}: {', '.join(others)}: orchid policy takes only {KIND}; "
            f"for other kinds use {CLIENT} apply -f",
            USAGE,
        )
    if not policies:
        raise Complaint(f"{name} has no {KIND}", USAGE)
    return policies


def _policy(name: str) -> Json:
    """The only policy of a file."""
    policies = _policies(name)
    if len(policies) > 1:
        raise Complaint(f"{name} has {len(policies)} policies; test one at a time", USAGE)
    return policies[0]


def _name_in(file: str, policy: Json) -> str:
    name = (policy.get("metadata") or {}).get("name")
    if not isinstance(name, str) or not name:
        raise Complaint(f"{file}: a policy has no name", USAGE)
    return name


def _read(name: str) -> bytes:
    try:
        if name == "-":
            data = sys.stdin.buffer.read(LARGEST + 1)
        else:
            with Path(name).open("rb") as file:
                data = file.read(LARGEST + 1)
    except OSError as error:
        raise Complaint(f"cannot read {name}: {error.strerror}", USAGE) from None
    if len(data) > LARGEST:
        raise Complaint(f"{name} is too large", USAGE)
    return data


def _url(server: ServerConnection, *parts: str) -> str:
    return path("apis", server.naming.identity, VERSION, *parts)


COLUMNS = (
    ListColumn("NAME", name_of),
    ListColumn("SIGNERS", lambda one: ", ".join(one["spec"].get("signerNames") or ("any",))),
    ListColumn("OTHERWISE", lambda one: one["spec"].get("otherwise") or "leave"),
    ListColumn("READY", _ready),
    ListColumn("AGE", lambda one: times.age(one["metadata"].get("creationTimestamp"))),
)
