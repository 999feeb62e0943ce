"""Every code block of the README and the pages is run or decoded, or says that it is output.

By its language: `console` is typed and its output compared (here, in test_readme_walk.py and in
test_mtls_page.py); `yaml` is read by the part of the server that it is for, objects of the API by a
running server; `toml` holds settings; `python` is run; `sh` is run beside a server; `nginx`,
`apache` and `javascript` are used by tests of their pages. `text` is output, or a picture. Any
other block is a mistake.

Shell that needs more than a server says what: `sh needs=systemd` is typed by test_systemd.py on a
real systemd. For the rest, named and counted in `ONLY_READ`, the shell is parsed, and its commands,
flags, files and make targets must exist. Commands within sentences must exist too.
"""

import argparse
import base64
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from orchid import cli
from orchid.assembly.kinds import stored_kinds
from orchid.assembly.settings import read
from orchid.features.certificates.commands.request_flags import url as request_url
from orchid.features.certificates.commands.requesting import Wanted, send
from orchid.features.certificates.commands.responses import wait_for
from orchid.features.exchange.configuration import read_configuration as read_exchange
from orchid.features.hosts.agent.configuration import parse as read_agent
from orchid.features.rights.authorizers.configuration import (
    read_configuration as read_authorization,
)
from orchid.features.sealing.encryption import read_configuration as read_encryption
from orchid.features.sign_in.oidc.configuration import read_configuration as read_authentication
from orchid.kernel.credentials.x509.certificate_request import AlternativeNames
from orchid.kernel.expressions.cel import Compiler
from orchid.kernel.server.audit import policy as audit_policy
from orchid.kernel.settings.checking import check
from orchid.kernel.terminal import kubeconfig_file
from orchid.kernel.terminal.connection import ServerConnection
from orchid.kernel.wire.codec import yaml_text
from orchid.kernel.wire.naming import ORCH
from tests.e2e.serving import running_server
from tests.e2e.test_readme_walk import Walk, steps
from tests.system_packages import require_program

ROOT = Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^( *)```([^\n`]*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
DEPLOY = ROOT / "deploy" / "README.md"
HOW_TO = sorted((ROOT / "docs" / "how-to").glob("*.md"))
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *HOW_TO, DEPLOY]
TYPED_ELSEWHERE = {"systemd": ["deploy/README.md", "docs/hosts.md", "docs/how-to/backup.md"]}
USED_BY_THEIR_TESTS = ("nginx", "apache", "javascript")
ONLY_READ = {
    "network": 2,  # make run, test and setup fetch packages; the tests run in what they made
    "supervisord": 1,  # its configuration is run by test_deploy.py
    "docker": 1,
    "cluster": 4,
    "damage": 1,  # a store that is broken; tests/api/test_unreadable_objects.py breaks one
}
WALKED_ELSEWHERE = {"README.md", "mtls.md"}
SECRET = base64.b64encode(bytes(32)).decode()
SUBSTITUTED = re.compile(r"\$\([^)]*\)")
ORCHID = re.compile(r"^(?:\$ |runuser -u orchid -- )?(orchid [^#|>\n]*)", re.MULTILINE)
SHIPPED = re.compile(r"\bdeploy/[\w-]+/[\w./-]+")
MADE = re.compile(r"\bmake ([a-z-]+)")
INLINE = re.compile(r"(?<!`)`(orchid [^`]+)`(?!`)")


class Block(NamedTuple):
    """A block of code, and its location."""

    place: str
    language: str
    text: str
    needs: str = ""


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text()
    for match in FENCE.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        language, _, needs = match[2].partition(" needs=")
        yield Block(f"{page.relative_to(ROOT)}:{line}", language, match[3], needs)


ALL = [block for page in PAGES for block in blocks(page)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerConnection]:
    """One that objects are shown to; it stores none."""
    directory = tmp_path_factory.mktemp("server") / "data"
    with running_server(directory) as running:
        found = kubeconfig_file.find(running.kubeconfig, {})
        with closing(ServerConnection(kubeconfig_file.load(found), found)) as connection:
            ask_for_alice(connection)
            yield connection


def ask_for_alice(server: ServerConnection) -> None:
    """The request that pages speak of, and its certificate."""
    nobody = AlternativeNames([], [], [], [])
    usages = ["digital signature", "client auth"]
    wanted = Wanted("alice", [], nobody, ORCH.client_signer, usages, None)
    request = send(server, "alice", ec.generate_private_key(ec.SECP256R1()), wanted)
    approved = {"type": "Approved", "status": "True", "reason": "Test", "message": "for pages"}
    body = {**request, "status": {"conditions": [approved]}}
    server.put(request_url(server, "alice", "approval"), body)
    wait_for(server, "alice", 30)


# -- what each language asks for ---------------------------------------------------------------


def read_toml(text: str) -> None:
    tomllib.loads(text)
    path = Path("settings.toml")
    path.write_text(text)
    check(read(path, {}))


def read_shell(text: str) -> None:
    """Parse shell that is not run here; what it names must exist."""
    subprocess.run(["bash", "-n", "-c", text], check=True, capture_output=True)
    joined = SUBSTITUTED.sub("x", text).replace("\\\n", " ")
    for command in ORCHID.findall(joined):
        words = shlex.split(command)[1:]
        cli.build(words[:1]).parse_args(words)
    missing = [path for path in SHIPPED.findall(text) if not (ROOT / path).exists()]
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    missing += [target for target in MADE.findall(text) if target not in targets]
    assert missing == []


def run_shell(text: str, server: ServerConnection) -> None:
    """Type shell as the administrator of a running server; every command must succeed."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    home = str(Path.cwd())
    Path("orchid-data").symlink_to(server.files[0].parent)  # where commands look for it
    subprocess.run(
        ["bash", "-e", "-c", text],
        env={"PATH": path, "HOME": home, "KUBECONFIG": str(server.files[0])},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=120,
        check=True,
    )


def known(words: list[str]) -> bool:
    """Whether a command within a sentence, which may end early, is one with these flags."""
    parser: argparse.ArgumentParser = cli.build(words[:1])
    flags: set[str] = set()
    for word in words:
        inner = [each for each in parser._actions if isinstance(each, argparse._SubParsersAction)]
        flags |= {option for each in parser._actions for option in each.option_strings}
        if word.startswith("-"):
            if word.partition("=")[0] not in flags:
                return False
        elif inner and word.isalpha() and word.islower() and word not in inner[0].choices:
            return False
        elif inner and word in inner[0].choices:
            parser = inner[0].choices[word]
            flags |= {option for each in parser._actions for option in each.option_strings}
    return True


def run_python(text: str) -> None:
    exec(compile(text, "page", "exec"), {})  # noqa: S102 -- the project's own pages


CONFIGURATIONS: dict[str, Callable[[bytes], object]] = {
    "EncryptionConfiguration": lambda text: read_encryption(text, stored_kinds(ORCH)),
    "AuthenticationConfiguration": lambda text: read_authentication(text, ORCH),
    "AuthorizationConfiguration": lambda text: read_authorization(text, Compiler()),
    "Policy": audit_policy.parse,
    "TokenExchangeConfiguration": lambda text: read_exchange(text, f"{ORCH.identity}/v1alpha1", ()),
    "AgentConfiguration": lambda text: read_agent(text, "agent.yaml"),
}


def read_yaml(text: str, server: ServerConnection) -> None:
    named = Path("guard.yaml").resolve()
    named.touch()
    filled = text.replace("<base64 of 32 bytes>", SECRET)
    filled = filled.replace("/etc/orchid/guard.yaml", str(named))
    value, twice = yaml_text.load(filled.encode())
    assert isinstance(value, dict)
    assert not twice
    configuration = CONFIGURATIONS.get(value.get("kind", ""))
    if configuration is not None:
        configuration(filled.encode())
    else:
        show_to(server, value)


def show_to(server: ServerConnection, value: dict[str, Any]) -> None:
    """Have the server read an object strictly, and store nothing."""
    version = str(value["apiVersion"])
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    found = server.get(root)["resources"]
    plural = next(one["name"] for one in found if one["kind"] == value["kind"])
    server.post(f"{root}/{plural}?dryRun=All&fieldValidation=Strict", value)


def try_block(block: Block, server: ServerConnection) -> None:
    """Run or decode a block; raises whatever is wrong with it."""
    if block.language == "yaml":
        read_yaml(block.text, server)
    elif block.language == "sh" and not block.needs:
        run_shell(block.text, server)
    else:
        tried = {"toml": read_toml, "sh": read_shell, "python": run_python}
        tried[block.language](block.text)


# -- the tests ---------------------------------------------------------------------------------


def test_every_block_says_what_it_is() -> None:
    """A block without a language, or with one that nobody runs, would be read and never tried."""
    known = {"console", "yaml", "toml", "sh", "python", "text", *USED_BY_THEIR_TESTS}

    assert [block.place for block in ALL if block.language not in known] == []


def test_blocks_that_are_not_run_are_named_and_counted() -> None:
    """A command that no test runs must be listed here with the reason."""
    needs = [block.needs for block in ALL if block.needs not in ("", *TYPED_ELSEWHERE)]
    typed = {block.place.partition(":")[0] for block in ALL if block.needs in TYPED_ELSEWHERE}

    assert Counter(needs) == ONLY_READ
    assert sorted(typed) == TYPED_ELSEWHERE["systemd"]


def test_commands_within_sentences_exist() -> None:
    """A command or flag that was renamed is renamed where it is spoken of, too."""
    unknown = [
        f"{page.name}: {command}"
        for page in PAGES
        for command in INLINE.findall(FENCE.sub("", page.read_text()))
        if not known(command.replace("…", "x").replace("[", "").replace("]", "").split()[1:])
    ]

    assert unknown == []


@pytest.mark.parametrize(
    "block",
    [block for block in ALL if block.language in ("yaml", "toml", "sh", "python")],
    ids=lambda block: block.place,
)
def test_block_is_what_the_server_takes(
    block: Block, server: ServerConnection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Settings, configurations and objects are read; shell is run, or at least could be."""
    monkeypatch.chdir(tmp_path)

    try_block(block, server)


@pytest.mark.parametrize(
    "page",
    [
        page
        for page in PAGES
        if page.name not in WALKED_ELSEWHERE
        and any(block.language == "console" for block in blocks(page))
    ],
    ids=lambda page: page.name,
)
def test_commands_of_a_page_do_what_it_shows(page: Path, tmp_path: Path) -> None:
    """Typed one after the other, beside a server of the page's own."""
    text = page.read_text()
    for program in ("curl", "kubectl", "openssl"):
        if f"$ {program} " in text:
            require_program(program)
    with ExitStack() as servers:
        walk = Walk(tmp_path, servers)
        start = "" if "$ orchid serve" in text else "```console\n$ orchid serve\n...\n```\n"

        walk.take(steps(start + text))


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("toml", 'lisen = "127.0.0.1:6443"\n'),
        ("sh", "orchid account new ci/a --no-such-flag x\n"),
        ("sh", "orchid csr fetch nobody\ntrue\n"),
        ("sh needs=cluster", "orchid serve --no-such-flag x\n"),
        ("sh needs=cluster", "runuser -u orchid -- orchid doctor --no-such-flag\n"),
        ("sh needs=cluster", "install deploy/systemd/no-such-file /etc\n"),
        ("sh needs=cluster", "make no-such-target\n"),
        ("sh needs=cluster", "if then\n"),
        ("python", "undefined()\n"),
        ("yaml", "apiVersion: audit.orch.io/v1\nkind: Policy\nrules: [{level: Evrything}]\n"),
        ("yaml", "apiVersion: v1\nkind: Namespace\nmetadata: {name: a, lables: {}}\n"),
        (
            "yaml",
            "apiVersion: apiserver.config.orch.io/v1\nkind: AuthenticationConfiguration\njwt: 5\n",
        ),
    ],
)
def test_wrong_block_is_found(
    language: str,
    text: str,
    server: ServerConnection,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each way to try a block fails on a wrong one."""
    monkeypatch.chdir(tmp_path)

    name, _, needs = language.partition(" needs=")
    with pytest.raises((Exception, SystemExit)):
        try_block(Block("wrong", name, text, needs), server)


@pytest.mark.parametrize("wrong", ["orchid accounts list", "orchid account list --nam", "orchid q"])
def test_wrong_command_within_a_sentence_is_found(wrong: str) -> None:
    """A command, an action or a flag that there is not."""
    assert not known(wrong.split()[1:])


def test_wrong_output_is_found(tmp_path: Path) -> None:
    """A page that shows what the command does not print is a failure."""
    page = "```console\n$ orchid serve\n...\n$ orchid account new ci/a\nmade ci/b\n```\n"

    with ExitStack() as servers, pytest.raises(AssertionError, match="orchid account new"):
        Walk(tmp_path, servers).take(steps(page))
