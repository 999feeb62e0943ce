"""Which kubeconfig is meant, and what it says."""

from pathlib import Path

import pytest

from orchid.kernel.outbound.kubeconfig import ServerAccess
from orchid.kernel.terminal.kubeconfig_file import FoundKubeconfig, find, load
from orchid.kernel.terminal.output import USAGE, Complaint

TEXT = """
apiVersion: v1
kind: Config
current-context: main
clusters:
- name: here
  cluster: {server: "https://127.0.0.1:6443", certificate-authority-data: UEVN}
users:
- name: me
  user: {token: abc}
- name: filed
  user: {tokenFile: token}
- name: plugin
  user: {exec: {command: get-token}}
- name: odd
  user: {token: "a b"}
contexts:
- name: main
  context: {cluster: here, user: me, namespace: ci}
- {name: filed, context: {cluster: here, user: filed}}
- {name: plugin, context: {cluster: here, user: plugin}}
- {name: odd, context: {cluster: here, user: odd}}
- {name: lost, context: {cluster: elsewhere, user: me}}
"""


def token_of(access: ServerAccess) -> str:
    token = access.token()
    assert token is not None
    return token.reveal()


@pytest.fixture
def beside(tmp_path: Path) -> Path:
    """The kubeconfig of a data directory, as a server leaves it."""
    path = tmp_path / "orchid-data" / "admin.kubeconfig"
    path.parent.mkdir(mode=0o700)
    path.write_text(TEXT)
    path.chmod(0o600)
    return path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "config"
    path.write_text(TEXT)
    return path


def test_the_flag_comes_first(file: Path) -> None:
    """The flag wins over the environment."""
    assert find(file, {"KUBECONFIG": "/elsewhere"}).paths == (file,)


def test_the_environment_comes_second_and_may_name_several(file: Path, tmp_path: Path) -> None:
    """Files that do not exist are passed over, as other clients do."""
    found = find(None, {"KUBECONFIG": f"{tmp_path / 'missing'}:{file}"}, tmp_path)

    assert found == FoundKubeconfig((file,), "$KUBECONFIG")


def test_the_data_directory_beside_comes_before_the_home(file: Path, tmp_path: Path) -> None:
    """The kubeconfig in the working directory of a server is used."""
    beside = tmp_path / "orchid-data" / "admin.kubeconfig"
    at_home = tmp_path / "home" / ".kube" / "config"
    for path in (beside, at_home):
        path.parent.mkdir(parents=True)
        path.write_text(TEXT)

    assert find(None, {"HOME": str(tmp_path / "home")}, tmp_path).paths == (beside,)
    beside.unlink()
    assert find(None, {"HOME": str(tmp_path / "home")}, tmp_path).paths == (at_home,)


def test_nothing_found_says_where_was_looked(tmp_path: Path) -> None:
    """The complaint lists the places and says how to start a server."""
    with pytest.raises(Complaint) as caught:
        find(None, {"HOME": str(tmp_path)}, tmp_path)

    assert caught.value.code == USAGE
    assert "orchid-data/admin.kubeconfig" in str(caught.value)
    assert "orchid serve" in str(caught.value)


@pytest.mark.parametrize("environ", [{}, {"KUBECONFIG": "/no/such/file"}])
def test_a_named_file_that_is_missing_is_a_mistake(environ: dict[str, str]) -> None:
    """No other file is taken in its place."""
    given = None if environ else Path("/no/such/file")

    with pytest.raises(Complaint, match=r"no such file|there is no file"):
        find(given, environ)


def test_the_current_context_is_read(file: Path) -> None:
    """Server, authority, user, namespace and credential come from the entries that it names."""
    access = load(FoundKubeconfig((file,), "--kubeconfig"))

    assert (access.server, access.authority) == ("https://127.0.0.1:6443", b"PEM")
    assert (access.user, access.namespace) == ("me", "ci")
    assert token_of(access) == "abc"
    assert "abc" not in repr(access)


def test_a_token_file_is_relative_to_the_kubeconfig(file: Path, tmp_path: Path) -> None:
    """As other clients have it, wherever the command was typed."""
    (tmp_path / "token").write_text("from-file\n")

    access = load(FoundKubeconfig((file,), ""), "filed")

    assert token_of(access) == "from-file"


@pytest.mark.parametrize(
    ("context", "words"),
    [
        ("plugin", "exec of plugin: apiVersion is none of"),
        ("odd", "characters that no token has"),
        ("lost", "no cluster named 'elsewhere'"),
        ("nowhere", "no context named 'nowhere'"),
    ],
)
def test_an_unusable_kubeconfig_is_reported(file: Path, context: str, words: str) -> None:
    """A complaint names the file and the entry."""
    with pytest.raises(Complaint, match=words) as caught:
        load(FoundKubeconfig((file,), ""), context)

    assert str(file) in str(caught.value)


def test_what_lies_in_a_directory_runs_no_plugin(beside: Path) -> None:
    """The author of the file would choose the program that is run."""
    with pytest.raises(Complaint, match="logs in by exec, which is not supported here"):
        load(FoundKubeconfig((beside,), "found there"), "plugin")


@pytest.mark.parametrize("text", ["", "[]", "a: [", "clusters: 5", "\x00"])
def test_a_file_that_is_no_kubeconfig_is_reported(tmp_path: Path, text: str) -> None:
    """No content of the file causes a traceback."""
    path = tmp_path / "config"
    path.write_text(text)

    with pytest.raises(Complaint):
        load(FoundKubeconfig((path,), ""))


def test_of_two_files_the_first_to_name_a_thing_wins(file: Path, tmp_path: Path) -> None:
    """Files are joined as other clients join them."""
    first = tmp_path / "first"
    first.write_text("current-context: filed\nusers: [{name: filed, user: {token: first}}]\n")

    access = load(FoundKubeconfig((first, file), "$KUBECONFIG"))

    assert token_of(access) == "first"
    assert access.server == "https://127.0.0.1:6443"


def test_own_data_directory_is_taken(beside: Path, tmp_path: Path) -> None:
    """In the directory where the server was started, no flag is needed."""
    found = find(None, {"HOME": "/nowhere"}, tmp_path)

    assert load(found).server == "https://127.0.0.1:6443"
    assert not found.is_ambient


@pytest.mark.parametrize("mode", [0o770, 0o701, 0o750])
def test_data_directory_that_others_can_enter_is_not_taken(
    beside: Path, tmp_path: Path, mode: int
) -> None:
    """The file mode is checked by the same rule as in the server."""
    beside.parent.chmod(mode)

    with pytest.raises(Complaint, match="can be reached by others"):
        load(find(None, {"HOME": "/nowhere"}, tmp_path))


def test_token_file_beside_stays_inside(beside: Path, tmp_path: Path) -> None:
    """A planted file could otherwise send any file of the caller's to its server."""
    (tmp_path / "secret").write_text("mine")
    beside.write_text(TEXT.replace("tokenFile: token", "tokenFile: ../secret"))
    outside = find(None, {"HOME": "/nowhere"}, tmp_path)

    with pytest.raises(Complaint, match="leads out of"):
        load(outside, "filed")

    assert token_of(load(find(beside, {}, tmp_path), "filed")) == "mine"
