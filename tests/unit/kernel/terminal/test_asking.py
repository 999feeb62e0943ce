"""Every command that changes something, and whether it asks first."""

import argparse

import pytest

from orchid import cli
from orchid.kernel.terminal.asking import insist
from orchid.kernel.terminal.output import USAGE, Complaint
from orchid.kernel.terminal.parser_tree import subparsers


def words_of(text: str) -> frozenset[str]:
    return frozenset(" ".join(text.split()).split(", "))


READ = words_of(
    """
    account list, account show, agent, bundle consumers, bundle history, bundle list,
    bundle published, bundle show, ca list, ca request, ca show, can, cluster doctor, cluster list,
    cluster show, completion, config show, console, controllers, csr fetch, csr list, csr show,
    doctor, host list, host show, issued, key list, key show, ledger check, ledger checkpoint,
    ledger entries, ledger export, ledger prove, ledger tokens, ledger verify, policy explain,
    policy list, policy show, policy test, revocations, role list, role show, serve, status, whoami
    """
)
# Another command undoes it, it only adds something, or the old state stays beside the new one.
CAN_BE_UNDONE = words_of(
    """
    account new, acme key, backup, bundle forget, bundle publish, bundle set, ca import, ca install,
    ca new, ca rotate, cluster add, cluster credential, credential, csr approve, csr deny, csr new,
    csr renew, grant, host new, host place, init, key back, key import, key new, key rotate,
    kubeconfig, migrate, policy apply, restore, revoke-grant, rewrite, role new, token
    """
)
ASKS = words_of(
    """
    account delete, bundle delete, bundle unpublish, ca delete, cluster remove, csr delete,
    host revoke, key retire, ledger accept, policy delete, revoke, role delete
    """
)


def leaves(parser: argparse.ArgumentParser, *words: str) -> dict[str, argparse.ArgumentParser]:
    """All commands and subcommands, by the words to type."""
    found = subparsers(parser)
    if not found:
        return {" ".join(words): parser}
    return {
        name: leaf
        for word, subparser in found.items()
        for name, leaf in leaves(subparser, *words, word).items()
    }


def test_every_command_has_a_rule_of_confirmation() -> None:
    assert sorted((*READ, *CAN_BE_UNDONE, *ASKS)) == sorted(leaves(cli.build()))


def test_the_commands_that_end_something_for_good_have_yes() -> None:
    with_yes = {
        name
        for name, parser in leaves(cli.build()).items()
        if any("--yes" in action.option_strings for action in parser._actions)
    }

    assert with_yes == ASKS


def test_without_a_terminal_yes_is_needed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Complaint, match=r"nothing was changed; .*--yes") as refused:
        insist(argparse.Namespace(yes=False), "Delete it?")
    insist(argparse.Namespace(yes=True), "Delete it?")

    assert refused.value.code == USAGE
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("answer", "is_meant"),
    [("y\n", True), ("YES\n", True), ("n\n", False), ("\n", False), ("", False)],
)
def test_on_a_terminal_only_yes_is_a_yes(
    answer: str,
    is_meant: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setattr("sys.stdin.readline", lambda size: answer)

    if is_meant:
        insist(argparse.Namespace(yes=False), "Delete it?")
    else:
        with pytest.raises(Complaint, match=r"nothing was changed$"):
            insist(argparse.Namespace(yes=False), "Delete it?")

    assert capsys.readouterr().err == "Delete it? [y/N] "
