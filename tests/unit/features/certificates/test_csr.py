"""`orchid csr`: what each action sends, which files it writes, and what it refuses."""

import base64
import json
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from orchid.features.certificates.commands.requesting import Wanted, build, load_key
from orchid.kernel.credentials.authorities.validity import leaf_validity
from orchid.kernel.credentials.x509 import signing_request
from orchid.kernel.credentials.x509.certificate_request import AlternativeNames
from orchid.kernel.terminal import times
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.user import MASTERS
from tests.unit.kernel.credentials import chains
from tests.unit.kernel.terminal.answering import Server, commands

Run = Callable[..., int]
REQUESTS = f"/apis/{ORCH.certificates}/v1/certificatesigningrequests"
AUTHORITIES = f"/apis/{ORCH.identity}/v1beta1/certificateauthorities"
REVIEWS = f"/apis/{ORCH.identity}/v1/approvalreviews"
ISSUED = f"/apis/{ORCH.identity}/v1/issuedcertificates"
WEB = "example.com/web"
DIGITAL = "digital signature"


@pytest.fixture
def server() -> Server:
    made = Server()
    made.on("POST", REQUESTS, lambda sent: sent, 201)
    made.on("POST", REVIEWS, {"status": {}}, 201)
    made.listed(AUTHORITIES, authority("web", WEB, "server auth"), authority("other", "o"))
    return made


@pytest.fixture
def run(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    monkeypatch.chdir(tmp_path)
    with commands(server, tmp_path) as made:
        yield made


def authority(name: str, signer: str, *usages: str) -> Any:
    return {
        "metadata": {"name": name},
        "spec": {"signerName": signer, "issues": {"usages": usages}},
    }


def request_in(sent: Any) -> Any:
    return signing_request.parse(base64.b64decode(sent["spec"]["request"]))


def subject_of(request: Any) -> tuple[str, tuple[str, ...]]:
    return request.subject.common_name, tuple(request.subject.organizations)


@pytest.mark.parametrize(
    ("flags", "subject", "dns", "spec"),
    [
        (
            (),
            ("alice", ()),
            (),
            {"signerName": ORCH.client_signer, "usages": [DIGITAL, "client auth"]},
        ),
        (
            ("--user", "bob", "--group", "dev", "--group", "ops", "--for", "24h"),
            ("bob", ("dev", "ops")),
            (),
            {
                "signerName": ORCH.client_signer,
                "usages": [DIGITAL, "client auth"],
                "expirationSeconds": 86400,
            },
        ),
        (
            ("--signer", WEB, "--dns", "web.example.com"),
            ("", ()),
            ("web.example.com",),
            {"signerName": WEB},
        ),
        (("--signer", WEB), ("alice", ()), (), {"signerName": WEB}),
        (
            ("--signer", WEB, "--dns", "a.example", "--user", "bob", "--usage", "code signing"),
            ("bob", ()),
            ("a.example",),
            {"signerName": WEB, "usages": ["code signing"]},
        ),
        (
            ("--serving", "--dns", "a.example"),
            ("", ()),
            ("a.example",),
            {"signerName": WEB, "usages": [DIGITAL, "server auth"]},
        ),
        (
            ("--serving", "--dns", "a.example", "--signer", "x.io/y"),
            ("", ()),
            ("a.example",),
            {"signerName": "x.io/y", "usages": [DIGITAL, "server auth"]},
        ),
        (
            ("--serving", "--dns", "n1", "--user", "system:node:n1", "--group", "system:nodes"),
            ("system:node:n1", ("system:nodes",)),
            ("n1",),
            {"signerName": ORCH.node_serving_signer, "usages": [DIGITAL, "server auth"]},
        ),
    ],
)
def test_each_flag_of_a_new_request(  # noqa: PLR0917 -- the columns of the table
    server: Server, run: Run, flags: tuple[str, ...], subject: Any, dns: Any, spec: Any
) -> None:
    """The key is in a new file, for its owner alone."""
    assert run("csr", "new", "alice", *flags) == 0

    (sent,) = server.sent("POST", REQUESTS)
    request = request_in(sent)
    del sent["spec"]["request"]
    assert (sent["spec"], sent["metadata"]) == (spec, {"name": "alice"})
    assert sent["kind"] == "CertificateSigningRequest"
    assert subject_of(request) == subject
    assert tuple(request.dns_names) == dns
    assert load_key(Path("alice.key")).public_key() == request.public_key
    assert Path("alice.key").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("flags", "code", "text"),
    [
        (("--serving",), 2, "needs a name: give --dns or --ip"),
        (("--group", MASTERS), 2, "would not sign that"),
        (("--key", "gone.key"), 2, "gone.key"),
    ],
)
def test_each_refusal_of_a_new_request(  # noqa: PLR0917 -- the columns of the table
    server: Server,
    run: Run,
    capsys: pytest.CaptureFixture[str],
    flags: tuple[str, ...],
    code: int,
    text: str,
) -> None:
    """Nothing is sent, and no key stays behind."""
    assert run("csr", "new", "alice", *flags) == code

    assert text in capsys.readouterr().err
    assert not server.sent("POST", REQUESTS)
    assert not Path("alice.key").exists()


@pytest.mark.parametrize("name", ["a/b", ".", "..", ""])
def test_a_name_that_is_no_file_is_refused(run: Run, name: str) -> None:
    assert run("csr", "new", name) == 2


def test_a_key_of_the_user_is_used_and_kept(
    server: Server, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also if the server refuses; one that was created for it is removed."""
    assert run("csr", "new", "alice") == 0
    assert run("csr", "new", "alice") == 2
    assert "already there; use it with --key" in capsys.readouterr().err
    server.on("POST", REQUESTS, {"message": "no"}, 403)
    assert run("csr", "new", "bob", "--key", "alice.key") == 1
    assert Path("alice.key").exists()
    assert run("csr", "new", "bob") == 1
    assert not Path("bob.key").exists()


@pytest.mark.parametrize(
    ("found", "flags", "text"),
    [
        ([], ("--serving", "--ip", "10.0.0.1"), "no authority issues to servers yet"),
        (
            [authority("a", "b.io/x", "server auth"), authority("b", "a.io/x", "server auth")],
            ("--serving", "--ip", "10.0.0.1"),
            "choose with --signer: a.io/x, b.io/x",
        ),
    ],
)
def test_the_signer_of_servers_must_be_the_only_one(  # noqa: PLR0917 -- the columns of the table
    server: Server, run: Run, capsys: pytest.CaptureFixture[str], found: Any, flags: Any, text: str
) -> None:
    server.listed(AUTHORITIES, *found)

    assert run("csr", "new", "web", *flags) == 2

    assert text in capsys.readouterr().err


@pytest.mark.parametrize(
    ("signer", "answer", "review", "texts", "silent"),
    [
        ("", {}, {}, ("somebody else who may approve",), "no authority"),
        ("", {"groups": [MASTERS]}, {}, ("next: orchid csr approve alice, then",), "somebody"),
        ("", {}, {"outcome": "Approve"}, ("a policy approves it",), "somebody"),
        (WEB, {}, {}, ("unless a policy approves it",), "no authority"),
        (
            "x.io/y",
            {},
            {},
            ("no authority of this server signs for x.io/y",),
            "csr approve alice, then orchid csr approve",
        ),
    ],
)
def test_the_next_step_is_named(  # noqa: PLR0917 -- the parts of an answer
    server: Server,
    run: Run,
    capsys: pytest.CaptureFixture[str],
    signer: str,
    answer: Any,
    review: Any,
    texts: tuple[str, ...],
    silent: str,
) -> None:
    """By the answers of the server; and a signer that nobody has here."""
    server.on("POST", REQUESTS, lambda sent: {**sent, "spec": {**sent["spec"], **answer}}, 201)
    server.on("POST", REVIEWS, {"status": review})

    assert run("csr", "new", "alice", *(("--signer", signer) if signer else ())) == 0

    printed = capsys.readouterr().err
    assert all(text in printed for text in texts)
    assert silent not in printed


# -- renew ------------------------------------------------------------------------------------


LEAF = chains.make(
    "alice",
    key=chains.OTHER_P256,
    start=times.now() - timedelta(days=1),
    end=times.now() + timedelta(days=29),
    serial=0xA1,
    extra=[(x509.SubjectAlternativeName([x509.DNSName("a.example")]), False)],
)


@pytest.fixture
def held(server: Server, run: Run) -> Any:
    """A certificate and its key, and the signer on record."""
    assert run("csr", "new", "alice", "--signer", WEB) == 0
    server.calls.clear()
    Path("alice.crt").write_bytes(LEAF.public_bytes(Encoding.PEM))
    server.get(f"{ISSUED}/a1", {"spec": {"signerName": WEB}})
    return load_key(Path("alice.key"))


def test_a_renewal_asks_for_the_same(server: Server, run: Run, held: Any) -> None:
    """By the certificate and its record, under the next name."""
    assert run("csr", "renew", "alice") == 0
    assert run("csr", "renew", "alice", "--signer", "x.io/y") == 0

    first, other = server.sent("POST", REQUESTS)
    request = request_in(first)
    assert first["metadata"] == {"name": "alice-2"}
    assert (first["spec"]["signerName"], other["spec"]["signerName"]) == (WEB, "x.io/y")
    assert first["spec"]["usages"] == ["client auth"]
    assert first["spec"]["expirationSeconds"] == 30 * 86400
    assert subject_of(request) == ("alice", ())
    assert tuple(request.dns_names) == ("a.example",)
    assert request.public_key == held.public_key()


@pytest.mark.parametrize("lifetime", [timedelta(hours=1), timedelta(hours=8), timedelta(days=30)])
def test_a_renewal_lives_as_long_as_the_certificate_before(
    server: Server, run: Run, held: Any, lifetime: timedelta
) -> None:
    """Back-dating extends the certificate only if its lifetime is below eight hours."""
    begin, end = leaf_validity(lifetime, times.now(), times.now() + timedelta(days=365))
    leaf = chains.make("alice", key=chains.OTHER_P256, start=begin, end=end, serial=0xA1)
    Path("alice.crt").write_bytes(leaf.public_bytes(Encoding.PEM))

    assert run("csr", "renew", "alice") == 0

    [sent] = server.sent("POST", REQUESTS)
    assert sent["spec"]["expirationSeconds"] == lifetime.total_seconds()


@pytest.mark.parametrize(("within", "sends"), [("28d", False), ("30d", True)])
def test_a_renewal_may_wait_for_the_end(
    server: Server, run: Run, held: Any, within: str, sends: bool
) -> None:
    assert run("csr", "renew", "alice", "--if-ends-within", within) == 0

    assert bool(server.sent("POST", REQUESTS)) is sends


def test_a_certificate_without_a_record_needs_a_signer(
    server: Server, run: Run, held: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    server.get(f"{ISSUED}/a1", {"message": "no"}, 404)
    assert run("csr", "renew", "alice") == 2
    assert "name the signer with --signer" in capsys.readouterr().err
    Path("alice.crt").write_text("nonsense")
    assert run("csr", "renew", "alice") == 2
    assert run("csr", "renew", "alice", "--if-ends-within", "1d") == 2


def taken(server: Server, key: Any, *, signer: str = WEB, conditions: Any = ()) -> None:
    """The name alice-2 is taken by a request."""
    wanted = Wanted("alice", [], AlternativeNames([], [], [], []), signer, [], None)
    spec = {"request": base64.b64encode(build(key, wanted)).decode(), "signerName": signer}
    there = {"metadata": {"name": "alice-2"}, "spec": spec, "status": {"conditions": conditions}}
    server.get(f"{REQUESTS}/alice-2", there)

    def post(sent: Any) -> Any:
        return (
            (409, {"message": "exists"}) if sent["metadata"]["name"] == "alice-2" else (201, sent)
        )

    server.on("POST", REQUESTS, post)


def names_sent(server: Server) -> list[str]:
    return [sent["metadata"]["name"] for sent in server.sent("POST", REQUESTS)]


def test_a_request_that_waits_is_used_again(server: Server, run: Run, held: Any) -> None:
    """If it is for the same key and signer, and undecided."""
    taken(server, held)
    assert run("csr", "renew", "alice") == 0
    assert names_sent(server) == ["alice-2"]

    others: list[dict[str, Any]] = [
        {"key": chains.P256},
        {"key": held, "signer": "x.io/y"},
        {"key": held, "conditions": [{"type": "Denied"}]},
    ]
    for other in others:
        server.calls.clear()
        taken(server, **other)
        assert run("csr", "renew", "alice") == 0
        assert names_sent(server) == ["alice-2", "alice-3"]


def test_a_renewal_of_a_renewal_has_the_next_number(server: Server, run: Run, held: Any) -> None:
    assert run("csr", "renew", "alice-7", "--cert", "alice.crt", "--key", "alice.key") == 0
    assert run("csr", "renew", "alice-07", "--cert", "alice.crt", "--key", "alice.key") == 0

    assert names_sent(server) == ["alice-8", "alice-07-2"]


def issued(name: str = "alice-2", *types: str, certificate: bytes = b"NEW") -> Any:
    encoded = base64.b64encode(certificate).decode()
    status = {"certificate": encoded, "conditions": [{"type": word} for word in types]}
    spec = {"signerName": WEB, "username": "ann"}
    return {"metadata": {"name": name, "uid": "u1"}, "spec": spec, "status": status}


@pytest.mark.starts  # the command
@pytest.mark.parametrize(("code", "result"), [(0, 0), (3, 1)])
def test_a_renewal_replaces_the_file_and_runs_a_command(  # noqa: PLR0917 -- the columns of the table
    server: Server,
    run: Run,
    held: Any,
    capsys: pytest.CaptureFixture[str],
    code: int,
    result: int,
) -> None:
    server.get(f"{REQUESTS}/alice-2", issued())
    script = f"import sys; open('ran', 'w'); sys.exit({code})"

    done = run("csr", "renew", "alice", "--exec", f'{sys.executable} -c "{script}"')

    assert done == result
    assert Path("ran").exists()
    assert Path("alice.crt").read_bytes() == b"NEW"
    assert ("ended with exit code 3" in capsys.readouterr().err) is bool(code)
    assert run("csr", "renew", "alice", "--exec", "'unclosed") == 2


# -- decide, fetch, list, show ----------------------------------------------------------------


@pytest.mark.parametrize(("word", "verdict"), [("approve", "Approved"), ("deny", "Denied")])
def test_a_decision_is_added_to_the_conditions(
    server: Server, run: Run, capsys: pytest.CaptureFixture[str], word: str, verdict: str
) -> None:
    """Once; after a conflict it is read again."""
    answers = [409, 409, 200]
    server.get(f"{REQUESTS}/web", issued("web", "Other"))
    server.on("PUT", f"{REQUESTS}/web/approval", lambda sent: (answers.pop(0), sent))

    assert run("csr", word, "web", "--reason", "Checked", "--message", "m") == 0

    sent = server.sent("PUT")
    assert len(sent) == 3
    made = {"type": verdict, "status": "True", "reason": "Checked", "message": "m"}
    assert sent[-1]["status"]["conditions"] == [{"type": "Other"}, made]
    assert capsys.readouterr().out == f"{verdict.lower()} web\n"
    server.get(f"{REQUESTS}/web", issued("web", verdict))
    assert run("csr", word, "web") == 0
    assert len(server.sent("PUT")) == 3


def test_a_refused_decision_is_not_tried_again(server: Server, run: Run) -> None:
    """A conflict is, for some times."""
    server.get(f"{REQUESTS}/web", issued("web"))
    server.on("PUT", f"{REQUESTS}/web/approval", {"message": "no"}, 403)
    assert run("csr", "approve", "web") == 1
    assert len(server.sent("PUT")) == 1
    server.on("PUT", f"{REQUESTS}/web/approval", {"message": "changed"}, 409)
    assert run("csr", "approve", "web") == 1
    assert len(server.sent("PUT")) > 2


def test_a_deletion_is_meant(server: Server, run: Run) -> None:
    for name in ("a", "b"):
        server.on("DELETE", f"{REQUESTS}/{name}", {})

    assert run("csr", "delete", "a", "b") == 2
    assert not server.sent("DELETE")
    assert run("csr", "delete", "a", "b", "--yes") == 0
    deleted = [path.rpartition("/")[2] for verb, path, _ in server.calls if verb == "DELETE"]
    assert deleted == ["a", "b"]


@pytest.mark.parametrize(
    "flag", [("--dns", "bad\u00e9"), ("--ip", "10.0.0"), ("--email", "\u00e9@x")]
)
def test_a_name_that_a_request_cannot_have_is_refused(
    server: Server, run: Run, capsys: pytest.CaptureFixture[str], flag: tuple[str, str]
) -> None:
    assert run("csr", "new", "web", "--signer", WEB, *flag) == 2

    assert "the request cannot have these names" in capsys.readouterr().err
    assert not server.sent("POST", REQUESTS)


def test_a_certificate_is_fetched(
    server: Server, run: Run, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Into the file of the name, another one, or the output."""
    server.get(f"{REQUESTS}/web", issued("web", certificate=b"PEM\n"))

    assert run("csr", "fetch", "web") == 0
    assert run("csr", "fetch", "web", "--out", "other.crt") == 0
    assert (Path("web.crt").read_bytes(), Path("other.crt").read_bytes()) == (b"PEM\n", b"PEM\n")
    capsys.readouterr()
    assert run("csr", "fetch", "web", "--out", "-") == 0
    assert capsys.readouterr().out == "PEM\n"
    assert run("csr", "fetch", "web", "--out", tmp_path) == 1
    assert "cannot write" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("conditions", "review", "text"),
    [
        ([{"type": "Denied", "message": "no"}], {}, "web was denied: no"),
        ([{"type": "Failed"}], {}, "web was failed: no reason is given"),
        ([{"type": "Approved"}], {}, f"approved, but the signer {WEB} has not signed"),
        ([], {}, "nobody has decided"),
        (
            [],
            {"outcome": "Leave", "policies": [{"selected": True}], "message": "too long"},
            "no policy approves it (too long)",
        ),
        (
            [],
            {"outcome": "Approve", "policies": [{"selected": True}], "message": "by web"},
            "nobody has decided",
        ),
        (
            [],
            {"outcome": "Leave", "policies": [{"selected": False}], "message": "too long"},
            "nobody has decided",
        ),
    ],
)
def test_each_reason_why_there_is_no_certificate(  # noqa: PLR0917 -- the columns of the table
    server: Server,
    run: Run,
    capsys: pytest.CaptureFixture[str],
    conditions: Any,
    review: Any,
    text: str,
) -> None:
    server.get(f"{REQUESTS}/web", {**issued("web"), "status": {"conditions": conditions}})
    server.on("POST", REVIEWS, {"status": review})

    assert run("csr", "fetch", "web", "--wait", "0s") == 1

    assert text in capsys.readouterr().err
    assert not Path("web.crt").exists()


@pytest.mark.parametrize(
    ("one", "state"),
    [
        (issued("r", "Denied", "Approved"), "Denied"),
        (issued("r", "Failed", "Approved"), "Failed"),
        (issued("r", "Approved"), "Issued"),
        (issued("r", "Approved", certificate=b""), "Approved"),
        (issued("r", certificate=b""), "Pending"),
    ],
)
def test_each_state_in_the_list(
    server: Server, run: Run, capsys: pytest.CaptureFixture[str], one: Any, state: str
) -> None:
    server.listed(REQUESTS, one)

    assert run("csr", "list") == 0
    assert state in capsys.readouterr().out.splitlines()[1]
    assert run("csr", "list", "--pending") == 0
    assert (state in capsys.readouterr().out) is (state == "Pending")


def test_a_request_that_waits_is_shown_with_what_would_be_signed(
    server: Server, run: Run, held: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """And only then."""
    taken(server, held)
    one = server.answers["GET", f"{REQUESTS}/alice-2"][1]
    one["metadata"]["uid"] = "u1"
    one["spec"] |= {"username": "ann", "expirationSeconds": 7200, "groups": ["dev"]}
    certificate = {"subject": "CN=signed", "seconds": 3600, "usages": ["client auth"]}
    server.on("POST", REVIEWS, {"status": {"certificate": certificate, "obstacles": ["late"]}})
    capsys.readouterr()

    assert run("csr", "show", "alice-2") == 0
    shown = capsys.readouterr().out
    expected = ("CN=signed", "1h", "late", "ann", "dev", "2h", "CN=alice", "Pending", "ECDSA")
    assert [text for text in expected if text not in shown] == []
    one["status"] = {"conditions": [{"type": "Approved", "reason": "r", "message": "m"}]}
    assert run("csr", "show", "alice-2") == 0
    shown = capsys.readouterr().out
    assert "Would be signed" not in shown
    assert "r: m" in shown
    assert run("csr", "show", "alice-2", "-o", "json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["state"], found["decoded"]["Subject"]) == ("Approved", "CN=alice")
