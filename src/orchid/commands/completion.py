"""`orchid completion`: a script that lets a shell complete commands, actions, flags and names.

The words are taken from the parsers themselves, so that what is completed is what is understood.
Names of what is there are asked of the server while one types: the script calls
`orchid completion names SORT`, which prints nothing when it cannot.

    bash    source <(orchid completion bash)
    zsh     source <(orchid completion zsh)
    fish    orchid completion fish | source
"""

import argparse
from collections.abc import Callable, Iterator
from typing import NamedTuple

from orchid.commands.terminal import objects
from orchid.commands.terminal.connection import add_flags, connect
from orchid.commands.terminal.output import Complaint, say

ASKED = "names"
MOST_NAMES = 500


class Following(NamedTuple):
    """What may follow the beginning of a command line: words, and names of what is there."""

    words: list[str]
    sort: str = ""


Words = dict[str, Following]
"""By what was typed: `""` for the first word, `csr` for what follows that, `csr new`, and so on."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=("bash", "zsh", "fish", ASKED))
    parser.add_argument("sort", nargs="?", choices=tuple(objects.NAMES), help=argparse.SUPPRESS)
    add_flags(parser, forms=())


def run(chosen: argparse.Namespace) -> int:
    if chosen.shell == ASKED:
        return _names(chosen)
    everything: Callable[[], argparse.ArgumentParser] = chosen.everything
    write = {"bash": bash, "zsh": zsh, "fish": fish}[chosen.shell]
    say(write(words_of(everything())))
    return 0


def _names(chosen: argparse.Namespace) -> int:
    """Print names, one a line; whoever completes a word wants no complaints."""
    if chosen.sort is None:
        return 0
    try:
        server = connect(chosen)
        page = server.get(objects.NAMES[chosen.sort](server), {"limit": str(MOST_NAMES)})
    except Complaint:
        return 1
    for one in page.get("items") or ():
        say(objects.name_of(one))
    return 0


def words_of(parser: argparse.ArgumentParser) -> Words:
    """Every command line's beginning, and what can follow it."""
    return dict(_walk(parser, ()))


def _walk(
    parser: argparse.ArgumentParser, typed: tuple[str, ...]
) -> Iterator[tuple[str, Following]]:
    words: list[str] = []
    sort = ""
    inner: dict[str, argparse.ArgumentParser] = {}
    # argparse has no other way to ask a parser what it understands.
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            inner = dict(action.choices)
            words += inner
        elif action.option_strings:
            words += [word for word in action.option_strings if word.startswith("--")]
        else:
            sort = sort or objects.completed_from(action)
            if action.choices and action.help != argparse.SUPPRESS:
                words += [str(choice) for choice in action.choices]
    if typed == ("token",):
        words.append("show")
    yield " ".join(typed), Following(sorted(words), sort)
    for name, each in inner.items():
        yield from _walk(each, (*typed, name))


def bash(words: Words) -> str:
    return f"""# bash completion of orchid; load it with: source <(orchid completion bash)
_orchid() {{
    local current="${{COMP_WORDS[COMP_CWORD]}}" typed="" words="" sort="" word
    for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
        case "${{typed:+$typed }}$word" in
            {_known(words)}) typed="${{typed:+$typed }}$word" ;;
        esac
    done
    COMPREPLY=()
    case "$typed" in
{_cases(words, 'words="{}"; sort="{}"')}
    esac
    if [[ -n $sort && $current != -* ]]; then
        words="$(orchid completion names "$sort" 2>/dev/null)"
    fi
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
    return 0
}}
complete -o default -F _orchid orchid"""


def zsh(words: Words) -> str:
    return f"""#compdef orchid
# zsh completion of orchid; load it with: source <(orchid completion zsh)
_orchid() {{
    local typed="" word sort=""
    local -a following
    for word in "${{(@)words[2,CURRENT-1]}}"; do
        case "${{typed:+$typed }}$word" in
            {_known(words)}) typed="${{typed:+$typed }}$word" ;;
        esac
    done
    case "$typed" in
{_cases(words, "following=({}); sort={}")}
    esac
    if [[ -n $sort && $PREFIX != -* ]]; then
        following=("${{(@f)$(orchid completion names $sort 2>/dev/null)}}")
    fi
    compadd -- $following
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
        for word in following.words:
            option = f"-l {word[2:]}" if word.startswith("--") else f"-a {word}"
            lines.append(f"complete -c orchid -n '{condition}' {option}")
        if following.sort:
            asked = f"(orchid completion names {following.sort} 2>/dev/null)"
            lines.append(f"complete -c orchid -n '{condition}' -a '{asked}'")
    return "\n".join(lines)


def _known(words: Words) -> str:
    return "|".join(f'"{typed}"' for typed in words if typed)


def _cases(words: Words, action: str) -> str:
    lines = []
    for typed, following in words.items():
        # What may follow a flag is a value: the shell offers files for it.
        done = action.format(" ".join(following.words), following.sort)
        lines.append(f'        "{typed}") {done} ;;')
    return "\n".join(lines)
