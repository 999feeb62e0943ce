"""`orchid completion`: a script that lets a shell complete commands, actions and flags.

The words are taken from the parsers themselves, so that what is completed is what is understood.

    bash    source <(orchid completion bash)
    zsh     source <(orchid completion zsh)
    fish    orchid completion fish | source
"""

import argparse
from collections.abc import Callable, Iterator

from orchid.commands.terminal.output import say

Words = dict[str, list[str]]
"""What may follow: `""` for the first word, `csr` for what follows that, `csr new`, and so on."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=("bash", "zsh", "fish"))


def run(chosen: argparse.Namespace) -> int:
    everything: Callable[[], argparse.ArgumentParser] = chosen.everything
    write = {"bash": bash, "zsh": zsh, "fish": fish}[chosen.shell]
    say(write(words_of(everything())))
    return 0


def words_of(parser: argparse.ArgumentParser) -> Words:
    """Every command line's beginning, and the words that can follow it."""
    return dict(_walk(parser, ()))


def _walk(
    parser: argparse.ArgumentParser, typed: tuple[str, ...]
) -> Iterator[tuple[str, list[str]]]:
    words: list[str] = []
    inner: dict[str, argparse.ArgumentParser] = {}
    # argparse has no other way to ask a parser what it understands.
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            inner = dict(action.choices)
            words += inner
        elif action.option_strings:
            words += [word for word in action.option_strings if word.startswith("--")]
        elif action.choices:
            words += [str(choice) for choice in action.choices]
    if typed == ("token",):
        words.append("show")
    yield " ".join(typed), sorted(words)
    for name, each in inner.items():
        yield from _walk(each, (*typed, name))


def bash(words: Words) -> str:
    return f"""# bash completion of orchid; load it with: source <(orchid completion bash)
_orchid() {{
    local current="${{COMP_WORDS[COMP_CWORD]}}" typed="" word
    for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
        case "${{typed:+$typed }}$word" in
            {_known(words)}) typed="${{typed:+$typed }}$word" ;;
        esac
    done
    COMPREPLY=()
    case "$typed" in
{_cases(words, 'mapfile -t COMPREPLY < <(compgen -W "{}" -- "$current")')}
    esac
    return 0
}}
complete -o default -F _orchid orchid"""


def zsh(words: Words) -> str:
    return f"""#compdef orchid
# zsh completion of orchid; load it with: source <(orchid completion zsh)
_orchid() {{
    local typed="" word
    for word in "${{(@)words[2,CURRENT-1]}}"; do
        case "${{typed:+$typed }}$word" in
            {_known(words)}) typed="${{typed:+$typed }}$word" ;;
        esac
    done
    case "$typed" in
{_cases(words, "compadd -- {}")}
    esac
    _files
}}
compdef _orchid orchid"""


def fish(words: Words) -> str:
    lines = ["# fish completion of orchid; load it with: orchid completion fish | source"]
    for typed, following in words.items():
        if not typed:
            condition = "__fish_use_subcommand"
        else:
            first, *rest = typed.split(" ")
            condition = f"__fish_seen_subcommand_from {first}"
            for each in rest:
                condition += f"; and __fish_seen_subcommand_from {each}"
        for word in following:
            option = f"-l {word[2:]}" if word.startswith("--") else f"-a {word}"
            lines.append(f"complete -c orchid -n '{condition}' {option}")
    return "\n".join(lines)


def _known(words: Words) -> str:
    return "|".join(f'"{typed}"' for typed in words if typed)


def _cases(words: Words, action: str) -> str:
    lines = []
    for typed, following in words.items():
        # What may follow a flag is a value: the shell offers files for it.
        lines.append(f'        "{typed}") {action.format(" ".join(following))} ;;')
    return "\n".join(lines)
