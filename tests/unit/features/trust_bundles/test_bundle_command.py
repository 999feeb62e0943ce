"""`orchid bundle`: what each action sends, prints and refuses."""

import io
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from orchid.kernel.wire.naming import ORCH
from tests.unit.kernel.terminal.answering import Server, commands

Run = Callable[..., int]
BUNDLES = f"/apis/{ORCH.certificates}/v1beta1/clustertrustbundles"
PUBLISHED = f"/apis/{ORCH.identity}/v1beta1/publishedbundles"
CONSUMERS = f"/api/v1/namespaces/{ORCH.system_namespace}/configmaps/trust-consumers.web"
LARGEST = 1 << 20


@pytest.fixture
def server() -> Server:
    server = Server()
    server.listed(BUNDLES)
    for collection in (BUNDLES, PUBLISHED):
        server.on("POST", collection, lambda sent: sent, 201)
        server.on("PUT", f"{collection}/web", lambda sent: sent)
    server.on("PUT", CONSUMERS, lambda sent: sent)
    return server


@pytest.fixture
def run(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    monkeypatch.chdir(tmp_path)
    Path("a.pem").write_text("A\n")
    Path("b.pem").write_text("B")
    with commands(server, tmp_path) as run:
        yield run


def bundle(name: str, text: str, **spec: Any) -> dict[str, Any]:
    meta = {"name": name, "resourceVersion": "7"}
    return {"metadata": meta, "spec": {"trustBundle": text, **spec}}


# -- trust bundles ------------------------------------------------------------------------------


def test_bundles_are_listed(server: Server, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """With the number of their certificates; on request those of one signer."""
    two = "-----BEGIN CERTIFICATE-----\n" * 2
    server.listed(BUNDLES, bundle("web", two, signerName="a.b/c"), bundle("other", ""))

    assert run("bundle", "list") == 0
    first, second = (line.split() for line in capsys.readouterr().out.splitlines()[1:])
    assert sorted([first[:3], second[:3]]) == [["other", "-", "0"], ["web", "a.b/c", "2"]]

    server.calls.clear()
    assert run("bundle", "list", "--signer", "a.b/c") == 0
    assert server.sent("GET", BUNDLES)[0]["fieldSelector"] == "spec.signerName=a.b/c"


@pytest.mark.parametrize("words", [(), ("web", "--signer", "s")])
def test_one_bundle_or_those_of_a_signer_are_shown(
    run: Run, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    """Neither and both are mistakes."""
    assert run("bundle", "show", *words) == 2
    assert "give either the NAME of a bundle or --signer" in capsys.readouterr().err


def test_the_text_of_bundles_is_printed(
    server: Server, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    """What several bundles of a signer share once."""
    server.get(f"{BUNDLES}/web", bundle("web", "A\n"))
    server.listed(BUNDLES, bundle("a", "A\n"), bundle("b", "A"), bundle("c", "C\n"))

    run("bundle", "show", "web", "--pem")
    assert capsys.readouterr().out == "A\n"
    run("bundle", "show", "--signer", "s", "--pem")
    assert capsys.readouterr().out == "A\nC\n"
    assert server.sent("GET", BUNDLES)[-1]["fieldSelector"] == "spec.signerName=s"

    run("bundle", "show", "web", "-o", "json")
    assert json.loads(capsys.readouterr().out)["spec"] == {"trustBundle": "A\n"}
    run("bundle", "show", "--signer", "s", "-o", "json")
    assert len(json.loads(capsys.readouterr().out)) == 3


def test_a_bundle_that_is_not_there_or_not_readable(
    server: Server, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line for each, and exit code 1."""
    assert run("bundle", "show", "--signer", "s") == 1
    assert "s has no trust bundle" in capsys.readouterr().err

    server.get(
        f"{BUNDLES}/web",
        bundle("web", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
    )
    assert run("bundle", "show", "web") == 1
    assert "the bundle cannot be read" in capsys.readouterr().err


def test_a_bundle_is_created_from_files(
    server: Server, run: Run, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each ends with a line break; standard input is one of them."""
    monkeypatch.setattr("sys.stdin", io.StringIO("IN"))

    assert run("bundle", "set", "web", "b.pem", "-", "a.pem") == 0
    assert run("bundle", "set", "web", "a.pem", "--signer", "s") == 0

    plain, signed = server.sent("POST")
    assert plain["spec"] == {"trustBundle": "B\nIN\nA\n"}
    assert plain["metadata"] == {"name": "web"}
    assert plain["kind"] == "ClusterTrustBundle"
    assert plain["apiVersion"] == f"{ORCH.certificates}/v1beta1"
    assert signed["spec"]["signerName"] == "s"
    assert "created web\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("before", "words", "spec", "done"),
    [
        ("A\n", (), {"trustBundle": "A\n", "signerName": "s"}, "unchanged: web"),
        ("B\n", (), {"trustBundle": "A\n", "signerName": "s"}, "replaced web"),
        ("B\n", ("--signer", "t"), {"trustBundle": "A\n", "signerName": "t"}, "replaced web"),
    ],
)
def test_a_bundle_is_replaced(  # noqa: PLR0917 -- the columns of the table
    server: Server,
    run: Run,
    capsys: pytest.CaptureFixture[str],
    before: str,
    words: tuple[str, ...],
    spec: Any,
    done: str,
) -> None:
    """In the version that was read; its signer stays unless another is named."""
    server.get(f"{BUNDLES}/web", bundle("web", before, signerName="s"))

    assert run("bundle", "set", "web", "a.pem", *words) == 0
    assert capsys.readouterr().out == f"{done}\n"

    (sent,) = server.sent("PUT")
    assert sent["spec"] == spec
    assert sent["metadata"]["resourceVersion"] == "7"
    assert run("bundle", "set", "web", "a.pem", "-o", "json") == 0
    assert json.loads(capsys.readouterr().out)["spec"]["trustBundle"] == "A\n"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (None, "cannot read x.pem: No such file"),
        (b"\xff\xfe", "x.pem is not text; a bundle is PEM"),
        (b"x" * (LARGEST + 1), "x.pem is larger than a bundle may be"),
    ],
)
def test_each_refusal_of_a_file(
    server: Server, run: Run, capsys: pytest.CaptureFixture[str], data: bytes | None, reason: str
) -> None:
    """A mistake of the caller, before a server is asked."""
    if data is not None:
        Path("x.pem").write_bytes(data)

    assert run("bundle", "set", "web", "x.pem") == 2

    assert reason in capsys.readouterr().err
    assert not server.calls


def test_the_largest_file_is_accepted(run: Run) -> None:
    Path("x.pem").write_text("x" * LARGEST)

    assert run("bundle", "set", "web", "x.pem") == 0


@pytest.mark.parametrize(
    ("command", "target"),
    [
        (("set", "web", "a.pem"), f"{BUNDLES}/web"),
        (("publish", "web", "--signer", "s"), f"{PUBLISHED}/web"),
    ],
)
def test_what_cannot_be_read_is_not_created(
    server: Server, run: Run, command: tuple[str, ...], target: str
) -> None:
    """Only 404 says that there is none."""
    server.get(target, {"message": "no"}, 403)

    assert run("bundle", *command) == 1
    assert not server.sent("POST")
    assert not server.sent("PUT")


@pytest.mark.parametrize(("action", "collection"), [("delete", BUNDLES), ("unpublish", PUBLISHED)])
def test_deleting_needs_a_confirmation(
    server: Server, run: Run, capsys: pytest.CaptureFixture[str], action: str, collection: str
) -> None:
    """Each name has its line; one that fails does not stop the others."""
    server.on("DELETE", f"{collection}/web", {"kind": "Status"})
    assert run("bundle", action, "web") == 2
    assert not server.sent("DELETE")

    assert run("bundle", action, "gone", "web", "--yes") == 1
    output = capsys.readouterr()
    assert output.out == "deleted web\n"
    assert "orchid: gone: " in output.err


# -- published bundles --------------------------------------------------------------------------


def test_a_bundle_is_published(
    server: Server, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    """From signers, bundles and labels, all of several labels in one source."""
    words = ("--signer", "s", "--bundle", "b", "--label", "a=1", "--label", "c=")
    assert run("bundle", "publish", "web", *words, "--trust-domain", "t", "--refresh", "5m") == 0

    (sent,) = server.sent("POST")
    assert sent["kind"] == "PublishedBundle"
    assert sent["apiVersion"] == f"{ORCH.identity}/v1beta1"
    assert sent["metadata"] == {"name": "web"}
    assert sent["spec"] == {
        "sources": [
            {"signerName": "s"},
            {"name": "b"},
            {"labelSelector": {"matchLabels": {"a": "1", "c": ""}}},
        ],
        "trustDomain": "t",
        "refreshHint": "5m",
    }
    assert capsys.readouterr().out == "published web: https://orchid.test/trust/web.pem\n"


def test_a_published_bundle_is_changed(
    server: Server, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the version that was read, and with these sources only."""
    old = {"metadata": {"name": "web", "resourceVersion": "7"}, "spec": {"trustDomain": "t"}}
    server.get(f"{PUBLISHED}/web", old)

    assert run("bundle", "publish", "web", "--bundle", "b") == 0
    assert capsys.readouterr().out.startswith("changed web: ")
    assert server.sent("PUT") == [{**old, "spec": {"sources": [{"name": "b"}]}}]
    assert run("bundle", "publish", "web", "--bundle", "b", "-o", "json") == 0
    assert json.loads(capsys.readouterr().out)["spec"] == {"sources": [{"name": "b"}]}


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ((), "give at least one of --signer, --bundle and --label"),
        (("--label", "a"), "--label a: not of the form KEY=VALUE"),
        (("--label", "=1"), "--label =1: not of the form KEY=VALUE"),
        (("--label", "a=1", "--label", "b"), "--label b: not of the form"),
    ],
)
def test_each_refusal_of_sources(
    server: Server,
    run: Run,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    reason: str,
) -> None:
    assert run("bundle", "publish", "web", *words) == 2

    assert reason in capsys.readouterr().err
    assert not server.calls


def published(**status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "web"}, "spec": {}, "status": status}


def test_published_bundles_are_listed(
    server: Server, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the clients that are behind, and the reason of one that is not ready."""
    ready = [{"type": "Other", "status": "False"}, {"type": "Ready", "status": "True"}]
    refused = [{"type": "Ready", "status": "False", "reason": "NoSources"}]
    consumers = {"behind": 1, "current": 4}
    server.listed(
        PUBLISHED,
        published(conditions=ready, consumers=consumers, certificates=2, sequence=17),
        published(conditions=refused),
        published(),
    )

    assert run("bundle", "published") == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[1:]]
    assert [row[:3] + row[-2:] for row in rows] == [
        ["web", "2", "17", "1/5", "ready"],
        ["web", "0", "-", "-", "NoSources"],
        ["web", "0", "-", "-", "-"],
    ]

    server.listed(PUBLISHED)
    run("bundle", "published")
    assert "no published bundles" in "".join(capsys.readouterr())


def test_the_history_of_a_published_bundle(
    server: Server, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its editions; without one, the reason."""
    edition = {"sequence": 86400, "certificates": 2, "sha256": "ab"}
    server.get(f"{PUBLISHED}/web", published(editions=[edition]))
    run("bundle", "history", "web")
    row = capsys.readouterr().out.splitlines()[1]
    assert row.split() == ["86400", "1970-01-02", "00:00:00", "UTC", "2", "ab"]
    run("bundle", "history", "web", "-o", "json")
    assert json.loads(capsys.readouterr().out) == [edition]

    conditions = [{"type": "Ready", "status": "False", "message": "no source"}]
    for status, reason in (
        ({"conditions": conditions}, "no edition: no source"),
        ({}, "no edition: no controller has published it"),
    ):
        server.get(f"{PUBLISHED}/web", published(**status))
        run("bundle", "history", "web")
        assert reason in "".join(capsys.readouterr())


def stored(named: Any, others: Any = None) -> dict[str, Any]:
    data = {"consumers.json": json.dumps({"named": named, "others": others or {}})}
    meta = {"name": "trust-consumers.web", "namespace": ORCH.system_namespace}
    return {"metadata": {**meta, "resourceVersion": "9"}, "data": data}


def test_the_consumers_of_a_published_bundle(
    server: Server, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those that are behind first, by edition, then by name; others are counted."""
    seen = int(time.time()) - 7200
    named = {
        name: {"sequence": sequence, "seen": seen}
        for name, sequence in (("d", 5), ("c", 6), ("b", 4), ("a", 4))
    }
    server.get(f"{PUBLISHED}/web", published(sequence=5))
    server.get(CONSUMERS, stored(named, {"5": 8, "4": 3}))

    assert run("bundle", "consumers", "web") == 0
    text = capsys.readouterr().out

    rows = [line.split() for line in text.splitlines()[1:5]]
    assert [row[:3] for row in rows] == [
        ["a", "behind", "4"],
        ["b", "behind", "4"],
        ["d", "current", "5"],
        ["c", "current", "6"],
    ]
    assert rows[0][3].startswith("2h")
    assert "2 of 4 are behind, the longest a\n" in text
    assert "other clients fetched the current edition 8 times" in text
    run("bundle", "consumers", "web", "-o", "json")
    assert json.loads(capsys.readouterr().out)["others"] == {"5": 8, "4": 3}


def test_a_bundle_without_consumers(
    server: Server, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    """No ConfigMap is an empty list; another refusal is reported."""
    server.get(f"{PUBLISHED}/web", published(sequence=5))

    assert run("bundle", "consumers", "web") == 0
    output = "".join(capsys.readouterr())
    assert "no client sent a credential" in output
    assert "behind" not in output
    assert "the current edition 0 times" in output

    server.get(CONSUMERS, {"message": "no"}, 403)
    assert run("bundle", "consumers", "web") == 1


@pytest.mark.parametrize(
    "data", [{}, {"consumers.json": "{"}, {"consumers.json": "[]"}, {"consumers.json": "{}"}]
)
def test_a_list_of_consumers_that_cannot_be_read(
    server: Server, run: Run, capsys: pytest.CaptureFixture[str], data: Any
) -> None:
    """One line, and nothing is written over it."""
    server.get(f"{PUBLISHED}/web", published(sequence=5))
    server.get(CONSUMERS, {**stored({}), "data": data})

    for words in (("consumers", "web"), ("forget", "web", "ann")):
        assert run("bundle", *words) == 1
        assert "the list of consumers of web cannot be read" in capsys.readouterr().err
    assert not server.sent("PUT")


def test_a_consumer_is_forgotten(
    server: Server, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the version that was read, so that no fetch meanwhile is lost; others stay."""
    entry = {"sequence": 4, "seen": 1}
    server.get(CONSUMERS, stored({"ann": entry, "bob": entry}, {"4": 3}))

    assert run("bundle", "forget", "web", "ann") == 0

    (sent,) = server.sent("PUT")
    assert capsys.readouterr().out == "forgot ann\n"
    assert sent["metadata"]["resourceVersion"] == "9"
    assert json.loads(sent["data"]["consumers.json"]) == {
        "named": {"bob": entry},
        "others": {"4": 3},
    }


def test_only_a_consumer_can_be_forgotten(
    server: Server, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a list, and in a list that has others."""
    assert run("bundle", "forget", "web", "ann") == 1
    server.get(CONSUMERS, stored({"bob": {"sequence": 4, "seen": 1}}))
    assert run("bundle", "forget", "web", "ann") == 1

    assert capsys.readouterr().err.count("ann: is no consumer of web") == 2
    assert not server.sent("PUT")
