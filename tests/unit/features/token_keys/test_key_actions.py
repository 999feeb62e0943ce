"""`orchid key`: what each action sends, prints and refuses, through the command line."""

import json
import stat
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from orchid import cli
from orchid.kernel.wire.naming import ORCH
from tests.unit.kernel.terminal.answering import Server, commands

Run = Callable[..., int]
GROUP = f"/apis/{ORCH.identity}/v1beta1"
KEYS = f"{GROUP}/signingkeys"
AUTHORITIES = f"{GROUP}/certificateauthorities"
LEASES = f"/apis/{ORCH.coordination}/v1/namespaces/{ORCH.system_namespace}/leases"


@pytest.fixture
def server() -> Server:
    server = Server()
    server.listed(KEYS)
    server.listed(LEASES)
    server.listed(AUTHORITIES)
    return server


@pytest.fixture
def run(server: Server, tmp_path: Path) -> Iterator[Run]:
    with commands(server, tmp_path) as run:
        yield run


def key(name: str, state: str = "Active", **spec: Any) -> dict[str, Any]:
    status = {"keyID": f"id-of-{name}", "algorithm": "ES256"}
    return {"metadata": {"name": name}, "spec": {"state": state, **spec}, "status": status}


def serve(server: Server, *keys: Any) -> None:
    """List the keys, and answer for each of them; a change is answered with what was sent."""
    server.listed(KEYS, *keys)
    for each in keys:
        target = f"{KEYS}/{each['metadata']['name']}"
        server.get(target, each)
        server.on("PUT", target, lambda sent: sent)

    def created(sent: Any) -> Any:
        spec = {**sent["spec"], "state": "Published"}
        return {**sent, "spec": spec, "status": {"keyID": "kid"}}

    server.on("POST", KEYS, created, 201)


def states(server: Server) -> dict[str, str]:
    return {sent["metadata"]["name"]: sent["spec"]["state"] for sent in server.sent("PUT")}


def ago(**span: float) -> str:
    return f"{datetime.now(UTC) - timedelta(**span):%Y-%m-%dT%H:%M:%SZ}"


def test_a_list_is_in_the_order_of_the_keys(
    server: Server, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    """By group, then by number: the tenth key is after the ninth."""
    serve(server, key("web-2", authority="web"), key("tokens-10"), key("tokens-9"))

    assert run("key", "list") == 0

    lines = capsys.readouterr().out.splitlines()[1:]
    assert [line.split()[0] for line in lines] == ["tokens-9", "tokens-10", "web-2"]


@pytest.mark.parametrize(
    ("dependents", "expected"),
    [
        ({"live": 3, "end": 2.5}, ("3", "in 2h")),
        ({"live": 1, "end": -1, "unknownUntil": 5.5}, ("1", "in 5h")),
        ({"live": 1, "end": 5.5, "unknownUntil": 1}, ("1", "in 5h")),
        ({"end": -1}, ("0", "-")),
        ({}, ("0", "-")),
        ({"secrets": 1, "end": 2.5}, ("0", "never")),
    ],
)
def test_a_list_says_how_long_something_depends_on_a_key(
    server: Server,
    run: Run,
    capsys: pytest.CaptureFixture[str],
    dependents: dict[str, Any],
    expected: tuple[str, str],
) -> None:
    """Until the later of both times (hours from now here); tokens in Secrets never end."""
    times = {
        name: ago(hours=-dependents[name]) for name in ("end", "unknownUntil") if name in dependents
    }
    serve(server, {**key("tokens-1"), "status": {"dependents": {**dependents, **times}}})

    run("key", "list")

    line = capsys.readouterr().out.splitlines()[1]
    assert expected[0] in line.split()
    assert expected[1] in line


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("text", "k1"),
        ("csv", "key,algorithm,type\r\nk1,ES256,EC"),
        ("json", '"kid": "k1"'),
    ],
)
def test_keys_in_files_are_listed_as_published(
    server: Server, run: Run, capsys: pytest.CaptureFixture[str], form: str, expected: str
) -> None:
    """A server whose keys are files has no objects; the JSON Web Keys are shown instead."""
    server.get("/openid/v1/jwks", {"keys": [{"kid": "k1", "alg": "ES256", "kty": "EC"}]})

    assert run("key", "list", "-o", form) == 0
    assert expected.replace("\r\n", "\n") in capsys.readouterr().out.replace("\r\n", "\n")


def test_no_published_keys(server: Server, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """Objects of any kind are preferred; without both there is a sentence."""
    server.get("/openid/v1/jwks", {"keys": []})
    assert run("key", "list") == 0
    assert "no keys are published" in "".join(capsys.readouterr())

    serve(server, key("tokens-1"))
    assert run("key", "list") == 0
    assert "tokens-1" in capsys.readouterr().out


FULL = {
    "keyID": "kid",
    "algorithm": "ES256",
    "source": "Server",
    "times": {"active": "2026-01-01T00:00:00Z"},
    "revocationList": "web-1",
    "dependents": {
        "live": 7,
        "end": "2026-02-01T00:00:00Z",
        "holders": 2,
        "longest": [{"holder": "ann", "count": 4}],
        "secrets": 3,
        "unknownUntil": "2026-03-01T00:00:00Z",
    },
    "conditions": [
        {"type": "CanRetire", "status": "False", "reason": "Live", "message": "7 live"},
        {"type": "CanSign", "status": "True", "reason": "Ok", "message": "all have it"},
    ],
}


def test_a_key_is_shown_with_the_reasons_that_block_it(
    server: Server, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its times, list, dependents and conditions, each with yes or no."""
    serve(server, {**key("web-1", authority="web"), "status": FULL})

    assert run("key", "show", "web-1") == 0
    text = capsys.readouterr().out

    for part in (
        "web-1", "Active", "kid", "ES256", "Server", "Active since", "2026-01-01T00:00:00Z",
        "/crl/web-1.crl", "7 of 2, until 2026-02-01T00:00:00Z", "ann (4)",
        "3; they never end", "2026-03-01T00:00:00Z", "no: 7 live", "yes: all have it",
    ):  # fmt: skip
        assert part in text, part
    assert run("key", "show", "web-1", "-o", "json") == 0
    assert json.loads(capsys.readouterr().out)["status"] == FULL


def test_a_key_without_dependents_has_no_rows_for_them(
    server: Server, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nor for a revocation list; a count without holders has no `of`."""
    serve(server, key("tokens-1"))
    assert run("key", "show", "tokens-1") == 0
    text = capsys.readouterr().out
    assert not any(word in text for word in ("Live", "Longest", "In Secrets", "Unknown", "crl"))
    assert "For:        tokens" in text

    serve(server, {**key("tokens-1"), "status": {"dependents": {"live": 2}}})
    run("key", "show", "tokens-1")
    assert "2, until ?" in capsys.readouterr().out


def test_a_lost_key_is_shown_so(
    server: Server, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the reason of a condition, also if others come first."""
    conditions = [{"type": "A", "reason": "Ok"}, {"type": "B", "reason": "KeyLost"}]
    serve(server, {**key("tokens-1"), "status": {"conditions": conditions}})

    run("key", "show", "tokens-1")

    assert "Active, private key lost" in capsys.readouterr().out


def test_a_rotation_has_the_oldest_published_key_of_the_group_sign(
    server: Server, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    """By number; keys of authorities and clusters are other groups."""
    serve(
        server,
        key("tokens-10", "Published"),
        key("tokens-9", "Published"),
        key("tokens-8"),
        key("web-1", "Published", authority="web"),
        key("clusters-c-1", "Published", cluster="c"),
    )

    assert run("key", "rotate") == 0

    assert states(server) == {"tokens-9": "Active"}
    assert capsys.readouterr().out == "tokens-9 signs tokens\n"


def test_a_rotation_of_an_authority(
    server: Server, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its own key; the changed object for programs."""
    serve(server, key("tokens-2", "Published"), key("web-2", "Published", authority="web"))

    assert run("key", "rotate", "web") == 0
    assert capsys.readouterr().out == "web-2 signs certificates of web\n"
    assert states(server) == {"web-2": "Active"}

    assert run("key", "rotate", "web", "-o", "json") == 0
    assert json.loads(capsys.readouterr().out)["spec"]["state"] == "Active"


@pytest.mark.parametrize("name", [(), ("tokens",), ("sealing",)])
def test_only_certificates_are_hurried(
    server: Server, run: Run, capsys: pytest.CaptureFixture[str], name: tuple[str, ...]
) -> None:
    """A mistake before any change."""
    serve(server, key("tokens-2", "Published"))

    assert run("key", "rotate", *name, "--hurry") == 2

    assert "--hurry is for certificates" in capsys.readouterr().err
    assert not server.sent("PUT")


def test_a_hurry_moves_the_renewals_of_keys_that_have_signed(
    server: Server, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    """Active and Verifying ones of this authority, to the next hour; not the successor."""
    serve(
        server,
        key("web-1", "Retired", authority="web"),
        key("web-2", "Verifying", authority="web"),
        key("web-3", "Active", authority="web"),
        key("web-4", "Published", authority="web"),
        key("api-1", "Active", authority="api"),
    )

    assert run("key", "rotate", "web", "--hurry") == 0

    ends = {
        sent["metadata"]["name"]: datetime.fromisoformat(sent["spec"]["renewBy"])
        for sent in server.sent("PUT")
        if "renewBy" in sent["spec"]
    }
    assert set(ends) == {"web-2", "web-3"}
    for end in ends.values():
        assert timedelta(minutes=55) < end - datetime.now(UTC) <= timedelta(hours=1)
    assert "clients renew the certificates of web-2 until" in capsys.readouterr().err


def test_a_rotation_creates_the_successor_of_an_authority(
    server: Server, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the algorithm of the authority, under the next name that neither has."""
    serve(server, key("web-1", authority="web"))
    server.get(f"{AUTHORITIES}/web", {"spec": {"signerNames": ["s"], "key": {"algorithm": "P"}}})
    server.get(f"{KEYS}/web-2", key("web-2", "Published", authority="web"))
    server.on("PUT", f"{KEYS}/web-2", lambda sent: sent)

    assert run("key", "rotate", "web") == 0

    (sent,) = server.sent("POST")
    assert sent["metadata"] == {"name": "web-2"}
    assert sent["spec"] == {"authority": "web", "algorithm": "P"}
    assert (sent["kind"], sent["apiVersion"]) == ("SigningKey", f"{ORCH.identity}/v1beta1")
    assert "created web-2" in capsys.readouterr().err
    assert states(server) == {"web-2": "Active"}


@pytest.mark.parametrize(
    ("keys", "spec", "reason"),
    [
        ((), {"signerNames": ["s"]}, "web: its keys are files of the servers"),
        (
            (key("web-1", authority="web", pkcs11={"label": "l"}),),
            {"key": {"algorithm": "P"}},
            "web: its key is in the HSM; orchid key import --authority --pkcs11",
        ),
        (
            (
                {
                    **key("web-1", authority="web"),
                    "status": {"times": {"active": "2026-01-01T00:00:00Z"}},
                },
                {
                    **key("web-2", authority="web", pkcs11={"label": "l"}),
                    "status": {"times": {"active": "2026-01-02T00:00:00Z"}},
                },
            ),
            {"key": {"algorithm": "P"}},
            "web: its key is in the HSM",
        ),
        ((), {}, "web: the server does not create its keys; orchid key import --authority"),
        ((), {"signerNames": ["s"], "key": {"a": 1}}, "the server does not create its keys"),
    ],
    ids=["files", "hsm", "moved to the hsm", "no key", "no algorithm"],
)
def test_each_reason_for_no_successor(  # noqa: PLR0917 -- the columns of the table
    server: Server,
    run: Run,
    capsys: pytest.CaptureFixture[str],
    keys: tuple[Any, ...],
    spec: Any,
    reason: str,
) -> None:
    """The message says how the next key is added; nothing is created."""
    serve(server, *keys)
    server.get(f"{AUTHORITIES}/web", {"spec": spec})

    assert run("key", "rotate", "web") == 1

    assert reason in capsys.readouterr().err
    assert not server.sent("POST")


@pytest.mark.parametrize(
    ("renewed", "marks", "expected"),
    [
        (0, {}, "a server of an earlier version still runs"),
        (0, {f"{ORCH.identity}/serves": "1"}, "create a SigningKey first"),
        (90, {}, "create a SigningKey first"),
        (None, {}, "create a SigningKey first"),
    ],
)
def test_a_rotation_without_a_published_key(  # noqa: PLR0917 -- the columns of the table
    server: Server,
    run: Run,
    capsys: pytest.CaptureFixture[str],
    renewed: float | None,
    marks: Any,
    expected: str,
) -> None:
    """A live server of an earlier version is the reason; else the caller creates a key."""
    name = f"{ORCH.component}-server-a"
    spec = {} if renewed is None else {"renewTime": ago(seconds=renewed)}
    lease = {"metadata": {"name": name, "annotations": marks}, "spec": spec}
    server.listed(LEASES, lease)
    serve(server, key("tokens-1"), key("web-1", "Published", authority="web"))

    assert run("key", "rotate") == 1

    assert expected in capsys.readouterr().err
    assert not server.sent("PUT")


def test_a_change_by_the_leader_meanwhile_is_repeated(server: Server, run: Run) -> None:
    """With what is stored then; another refusal is not repeated."""
    replies = iter([(409, {"message": "changed"})])
    serve(server, key("tokens-2", "Published"))
    server.on("PUT", f"{KEYS}/tokens-2", lambda sent: next(replies, sent))

    assert run("key", "rotate") == 0
    assert len(server.sent("PUT")) == 2

    server.on("PUT", f"{KEYS}/tokens-2", {"message": "no"}, 403)
    assert run("key", "rotate") == 1
    assert len(server.sent("PUT")) == 3


def test_a_step_waits_only_for_a_refusal_of_the_rules(
    server: Server, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    """The reason is printed meanwhile; without --wait it ends the command."""
    replies = iter([(422, {"message": "servers lack it"})])
    serve(server, key("tokens-2", "Published"))
    server.on("PUT", f"{KEYS}/tokens-2", lambda sent: next(replies, sent))

    assert run("key", "rotate", "--wait", "5s") == 0
    assert "not yet: servers lack it" in capsys.readouterr().err

    server.on("PUT", f"{KEYS}/tokens-2", {"message": "servers lack it"}, 422)
    assert run("key", "rotate") == 1
    assert "servers lack it" in capsys.readouterr().err


@pytest.mark.parametrize("state", ["Verifying", "Active"])
def test_back_signs_with_a_key_again(
    server: Server, run: Run, capsys: pytest.CaptureFixture[str], state: str
) -> None:
    serve(server, key("tokens-1", state))

    assert run("key", "back", "tokens-1") == 0

    assert states(server) == {"tokens-1": "Active"}
    assert capsys.readouterr().out == "tokens-1 signs again\n"


def test_back_is_not_for_the_next_key(
    server: Server, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    """It never signed; the message names the other action."""
    serve(server, key("tokens-2", "Published"))

    assert run("key", "back", "tokens-2") == 1

    assert "tokens-2 is Published: orchid key rotate has it sign" in capsys.readouterr().err
    assert not server.sent("PUT")


def test_retiring_needs_a_confirmation(
    server: Server, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a terminal and --yes nothing changes."""
    serve(server, key("tokens-1", "Verifying"))
    assert run("key", "retire", "tokens-1") == 2
    assert not server.sent("PUT")

    assert run("key", "retire", "tokens-1", "--yes") == 0
    assert states(server) == {"tokens-1": "Retired"}
    assert "tokens-1 is retired; what it signed is refused" in capsys.readouterr().out


def test_retiring_a_key_of_an_authority_names_the_clients_that_are_behind(
    server: Server, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of its bundle; token keys have none."""
    serve(server, key("web-1", "Verifying", authority="web"), key("tokens-1", "Verifying"))
    consumers = {"current": 1, "behind": 2}
    server.get(f"{GROUP}/publishedbundles/web", {"status": {"consumers": consumers}})

    run("key", "retire", "web-1", "--yes")
    assert "2 of 3 consumers are behind\n" in capsys.readouterr().err

    server.get(f"{GROUP}/publishedbundles/web", {"message": "broken"}, 500)
    assert run("key", "retire", "web-1", "--yes") == 1
    assert len(server.sent("PUT")) == 1
    assert run("key", "retire", "tokens-1", "--yes") == 0


@pytest.mark.parametrize(
    ("words", "spec", "name"),
    [
        (("--secret", "pki/k"), {"secretRef": {"namespace": "pki", "name": "k"}}, "tokens-3"),
        (
            ("--secret", "pki/k", "--authority", "web"),
            {"secretRef": {"namespace": "pki", "name": "k"}, "authority": "web"},
            "web-1",
        ),
        (
            ("--pkcs11", "l", "--authority", "web"),
            {"pkcs11": {"label": "l"}, "authority": "web"},
            "web-1",
        ),
    ],
)
def test_an_import_creates_the_next_key(  # noqa: PLR0917 -- the columns of the table
    server: Server,
    run: Run,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    spec: Any,
    name: str,
) -> None:
    """Of its group, with the private key where it is."""
    serve(server, key("tokens-2"))

    assert run("key", "import", *words) == 0

    (sent,) = server.sent("POST")
    assert sent["spec"] == spec
    assert sent["metadata"]["name"] == name
    assert capsys.readouterr().out == f"imported {name}: kid, Published\n"
    assert run("key", "import", *words, "-o", "json") == 0
    assert json.loads(capsys.readouterr().out)["metadata"]["name"] == name


def test_the_name_of_another_authority_is_not_used(server: Server, run: Run) -> None:
    """Its keys would be mixed up with those of the authority of that name."""
    serve(server)
    server.listed(AUTHORITIES, {"metadata": {"name": "web"}}, {"metadata": {"name": "web-1"}})

    assert run("key", "import", "--pkcs11", "l", "--authority", "web") == 0
    assert server.sent("POST")[0]["metadata"]["name"] == "web-2"


def test_a_public_key_of_a_cluster_is_imported(server: Server, run: Run, tmp_path: Path) -> None:
    """Under a name that no key of another group has."""
    (tmp_path / "key.pem").write_text("PEM")
    serve(server)

    assert run("key", "import", "--public", tmp_path / "key.pem", "--cluster", "prod") == 0

    (sent,) = server.sent("POST")
    assert sent["spec"] == {"publicKey": "PEM", "cluster": "prod"}
    assert "prod" in sent["metadata"]["name"]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--public", "key.pem"), "--public and --cluster belong together"),
        (("--secret", "a/b", "--cluster", "c"), "--public and --cluster belong together"),
        (("--public", "gone.pem", "--cluster", "c"), "gone.pem"),
        (("--public", "large.pem", "--cluster", "c"), "large.pem"),
        (("--secret", "b"), "'b' is not NAMESPACE/NAME"),
        (("--secret", "/b"), "'/b' is not NAMESPACE/NAME"),
        (("--secret", "a/"), "'a/' is not NAMESPACE/NAME"),
    ],
)
def test_each_refusal_of_an_import(  # noqa: PLR0917 -- the columns of the table
    server: Server,
    run: Run,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    reason: str,
) -> None:
    """A mistake of the caller, and nothing is created."""
    monkeypatch.chdir(tmp_path)
    Path("key.pem").write_text("PEM")
    Path("large.pem").write_text("x" * (64 * 1024 + 1))

    assert run("key", "import", *words) == 2

    assert reason in capsys.readouterr().err
    assert not server.sent("POST")


def test_an_import_has_one_source(run: Run) -> None:
    """The parser refuses none and two."""
    for words in ((), ("--secret", "a/b", "--pkcs11", "l")):
        with pytest.raises(SystemExit, match="2"):
            run("key", "import", *words)


def test_a_key_file_is_made_for_its_owner(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Never over another file; the next step is printed with a name that a shell takes."""
    file = tmp_path / "a key"

    assert cli.main(["key", "new", str(file)]) == 0
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "PRIVATE KEY" in file.read_text()
    output = capsys.readouterr()
    assert output.out.startswith(f"created {file}: ")
    assert f"--service-account-signing-key-file '{file}'" in output.err

    before = file.read_text()
    assert cli.main(["key", "new", str(file)]) == 2
    assert "is already there" in capsys.readouterr().err
    assert file.read_text() == before
