"""`orchid revoke`: what it refuses before it asks a server, and what it would revoke."""

import argparse
import base64
import io
import json
from typing import Any

import pytest

from orchid.cli import main
from orchid.features.revoking.commands import revoke
from orchid.kernel.terminal.connection import CommandRefused
from orchid.kernel.terminal.output import Complaint
from tests.unit.kernel.terminal.api_server import END, PAST, ApiServer, record

CHOSEN = {
    "what": "",
    "name": "",
    "before": "",
    "certificates": False,
    "cluster": "",
    "yes": True,
    "reason": "unspecified",
    "message": "",
    "output": "text",
}


def chosen(**options: Any) -> argparse.Namespace:
    return argparse.Namespace(**{**CHOSEN, **options})


def wanted(server: Any, what: str, **options: Any) -> list[dict[str, Any]]:
    word, _, rest = what.partition("/")
    return [spec for _, spec in revoke._wanted(server, chosen(what=what, **options), word, rest)]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["lift"], "lift needs the name of a revocation"),
        (["user/jane", "other"], "only lift takes a second name"),
        (["token", "builder.token"], "orchid revoke token < FILE"),
        *((["--before", END, what], "--before is for") for what in ("cert/1", "token", "self")),
        (["--before", END, "lift", "x"], "--before is for"),
        *((["--certificates", what], "--certificates is for") for what in ("authority/a", "key/k")),
        *(
            (["--cluster", "prod", *more], "--cluster goes with none")
            for more in (
                ["user/a", "--before", END],
                ["user/a", "--certificates"],
                ["lift", "x"],
                ["self"],
            )
        ),
        (["self", "--cert", "f"], "--cert and --key go together"),
        (["self", "--key", "f"], "--cert and --key go together"),
        (["user/a", "--cert", "f", "--key", "f"], "--cert and --key go together"),
    ],
)
def test_options_that_would_have_no_effect_are_refused(
    words: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A user that was to be revoked until yesterday must not be revoked until now."""
    assert main(["revoke", *words, "--yes"]) == 2
    assert text in capsys.readouterr().err


@pytest.mark.parametrize(
    "what",
    ["", "csr/", "cert/", "account/x", "account/a/b/c", "authority/", "key/", "user/", "token/x"],
)
def test_what_names_no_credential_is_refused(what: str) -> None:
    with pytest.raises(Complaint, match="is none of") as refusal:
        wanted(ApiServer(), what)

    assert refusal.value.code == 2


def test_every_valid_certificate_of_a_request_is_revoked() -> None:
    """Not those that have ended, and not those of a cluster that had a request of that name."""
    server = ApiServer()
    listed = server.lists["issuedcertificates?spec.request.name=web"] = [
        record("a1"),
        record("b2", notAfter=PAST),
        record("c3", cluster="prod"),
        record("d4"),
    ]

    found = [one["certificate"]["serialNumber"] for one in wanted(server, "csr/web")]
    assert found == ["a1", "d4"]
    del listed[0], listed[-1]
    with pytest.raises(Complaint, match="no certificate of the request 'web' is still valid"):
        wanted(server, "csr/web")
    with pytest.raises(Complaint, match="no certificate of the request 'other' is recorded"):
        wanted(server, "csr/other")


@pytest.mark.parametrize("given", ["0A:1b", "a1b", "00a1B"])
def test_a_serial_number_is_read_as_programs_print_it(given: str) -> None:
    server = ApiServer()
    server.objects["a1b"] = record("a1b")

    named = {"serialNumber": "a1b", "signerName": "example.com/web"}
    assert wanted(server, f"cert/{given}") == [{"certificate": named}]
    with pytest.raises(Complaint, match="no serial number"):
        wanted(server, f"cert/{given}g")


def token(monkeypatch: pytest.MonkeyPatch, **claims: Any) -> None:
    claims = {"iss": "https://ours", "sub": "system:serviceaccount:ci:robot", "jti": "7", **claims}
    payload = base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=")
    data = b"e30." + payload + b".c2ln\n"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))


def test_a_token_of_another_issuer_is_named_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same id may be that of a token of an account here."""
    server = ApiServer()
    server.objects["openid-configuration"] = {"issuer": "https://ours"}
    ours = {"jti": "7", "namespace": "ci", "name": "robot"}

    token(monkeypatch)
    assert wanted(server, "token") == [{"token": ours}]
    token(monkeypatch, iss="https://theirs", sub="jane", exp=4102444800)
    theirs = {"jti": "7", "issuer": "https://theirs", "expires": END}
    assert wanted(server, "token") == [{"token": theirs}]
    for subject in ("system:user:ci:robot", "system:serviceaccount:robot", "jane"):
        token(monkeypatch, sub=subject)
        with pytest.raises(Complaint, match="no token with an id"):
            wanted(server, "token")


def test_an_account_that_does_not_exist_is_named_in_the_question() -> None:
    """It may have been deleted, or be a typing error; who may not read it is refused."""
    server: Any = ApiServer()
    server.objects["robot"] = {}
    server.refusals["get secret"] = CommandRefused(403, "no")

    def question(name: str) -> str:
        arguments = chosen(what=f"account/ci/{name}")
        ((text, _),) = revoke._wanted(server, arguments, "account", f"ci/{name}")
        return text

    account = {"namespace": "ci", "name": "robot", "issuedBefore": END}
    assert wanted(server, "account/ci/robot", before=END) == [{"account": account}]
    assert "exist" not in question("robot")
    assert "ci/robbot, which does not exist now," in question("robbot")
    with pytest.raises(CommandRefused):
        question("secret")
    with pytest.raises(Complaint, match="is no time"):
        wanted(server, "account/ci/robot", before="yesterday")


# -- certificates of a user -------------------------------------------------------------------


def test_the_certificates_of_a_user_are_revoked_on_request(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Otherwise their number is reported: other programs accept them."""
    server = ApiServer()
    server.lists["issuedcertificates"] = [
        record("a1", username="jane"),
        record("b2", username="john"),
        record("c3", requester={"username": "jane"}),
        record("d4", username="jane", notAfter=PAST),
    ]
    user = {"user": {"username": "jane"}}

    assert wanted(server, "user/jane") == [user]
    assert "2 valid certificates name or were requested by jane" in capsys.readouterr().err
    first, *rest = wanted(server, "user/jane", certificates=True)
    assert first == user
    assert [one["certificate"]["serialNumber"] for one in rest] == ["a1", "c3"]


def test_who_may_not_read_the_inventory_revokes_without_a_count(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """But not if the certificates are to be revoked, too, and not after another failure."""
    server = ApiServer()
    server.refusals["items issuedcertificates"] = CommandRefused(403, "no")

    assert wanted(server, "user/jane") == [{"user": {"username": "jane"}}]
    assert "you may not read" in capsys.readouterr().err
    with pytest.raises(CommandRefused):
        wanted(server, "user/jane", certificates=True)
    server.refusals["items issuedcertificates"] = CommandRefused(500, "broken")
    with pytest.raises(CommandRefused):
        wanted(server, "user/jane")


# -- the changes ------------------------------------------------------------------------------


TARGETS: Any = [("one", {"user": {"username": "a"}}), ("two", {"user": {"username": "b"}})]


def test_a_target_that_is_revoked_already_does_not_stop_the_others(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Only if the server names the other revocation: a name may also be taken by chance."""
    server: Any = ApiServer()
    refusals = iter((CommandRefused(409, "exists", "user-x"), None))

    def post(url: str, body: dict[str, Any], once: Any = server.post) -> Any:
        refusal = next(refusals)
        if refusal:
            raise refusal
        return once(url, body)

    server.post = post
    assert revoke._create(server, chosen(message="stolen", cluster="prod"), TARGETS) == 0
    made = server.changes[0][2]["spec"]
    assert made == {
        **TARGETS[1][1],
        "reason": "unspecified",
        "message": "stolen",
        "cluster": "prod",
    }
    assert "already revoked, by user-x" in capsys.readouterr().err


@pytest.mark.parametrize(
    "refusal", [CommandRefused(409, "exists"), CommandRefused(403, "no", "user-x")]
)
def test_any_other_refusal_ends_the_command(refusal: CommandRefused) -> None:
    server: Any = ApiServer()
    server.refusals["post credentialrevocations"] = refusal

    with pytest.raises(CommandRefused):
        revoke._create(server, chosen(), TARGETS)


@pytest.mark.parametrize(
    ("spec", "is_lifted"),
    [
        ({"token": {"jti": "7"}, "reason": "certificateHold"}, True),
        ({"user": {"username": "a"}}, True),
        ({"account": {"name": "a"}, "cluster": "prod"}, True),
        ({"account": {"name": "a"}}, False),
        ({"token": {"jti": "7"}, "cluster": "prod"}, False),
        ({"certificate": {"serialNumber": "a1"}, "reason": "keyCompromise"}, False),
    ],
)
def test_only_what_is_not_final_is_lifted(spec: dict[str, Any], *, is_lifted: bool) -> None:
    """And never without a confirmation."""
    server: Any = ApiServer()
    server.objects["r1"] = {"metadata": {"name": "r1"}, "spec": spec}
    asked = chosen(what="lift", name="r1")

    if is_lifted:
        with pytest.raises(Complaint, match="nothing was changed"):
            revoke._lift(server, chosen(what="lift", name="r1", yes=False))
        assert server.changes == []
        revoke._lift(server, asked)
    else:
        with pytest.raises(Complaint, match="is final"):
            revoke._lift(server, asked)
    assert server.changes == ([("delete", "r1", {})] if is_lifted else [])
