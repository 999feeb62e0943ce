"""`orchid completion`: a script that lets a shell complete commands, flags and names.

    bash    source <(orchid completion bash)
    zsh     source <(orchid completion zsh)
    fish    orchid completion fish | source

The scripts contain no words: they call `orchid completion words LINE...`, which prints the possible
last words of the line, one per line. The words come from the parsers, so that completion and
parsing agree; names come from the server of the line. Completion prints no errors: without a
suggestion nothing is printed, and the shell offers files.
"""

import argparse
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from orchid.kernel.terminal import objects
from orchid.kernel.terminal.connection import connect
from orchid.kernel.terminal.output import Complaint, name_of, say
from orchid.kernel.terminal.parser_tree import subparsers

ASKED: Final = "words"
MOST_NAMES: Final = 500

Build = Callable[[Sequence[str]], argparse.ArgumentParser]


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=(*SCRIPTS, ASKED), metavar="{bash,zsh,fish}")
    parser.add_argument("line", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)


def run(arguments: argparse.Namespace) -> int:
    if arguments.shell != ASKED:
        say(SCRIPTS[arguments.shell])
        return 0
    if len(arguments.line) > 1:
        for word in words(arguments.everything, arguments.line[1:]):
            say(word)
    return 0


def words(build: Build, line: Sequence[str]) -> list[str]:
    """The possible last words of a line; the last word may be incomplete or empty."""
    *typed, current = line
    cursor = _Cursor(build(typed[:1]))
    for word in typed:
        cursor.go_past(word)
    if cursor.pending is None and current.startswith("-") and "=" in current:
        flag, _, current = current.partition("=")
        cursor.go_past(flag)
        return [f"{flag}={word}" for word in cursor.following(current)]
    return list(cursor.following(current))


class _Cursor:
    """A position in a line: the parser, its next positional argument, and the flag before it."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self._parser = parser
        self._position = 0
        self._given: dict[str, str] = {}
        self.pending: argparse.Action | None = None

    def go_past(self, word: str) -> None:
        if self.pending is not None:
            self._given[self.pending.dest] = word
            self.pending = None
        elif word.startswith("-"):
            name, equals, value = word.partition("=")
            # argparse has no public way to get the options of a parser.
            action = self._parser._option_string_actions.get(name)
            if action is not None and action.nargs != 0:
                self.pending = None if equals else action
                self._given[action.dest] = value
        elif word in (inner := subparsers(self._parser)):
            self._parser, self._position = inner[word], 0
        else:
            self._position += 1

    def following(self, current: str) -> Iterator[str]:
        return (word for word in self._candidates(current) if word.startswith(current))

    def _candidates(self, current: str) -> Iterator[str]:
        if self.pending is not None:
            yield from self._values(self.pending)
        elif current.startswith("-"):
            yield from self._flags()
        elif inner := subparsers(self._parser):
            yield from inner
        elif (action := self._positional()) is not None:
            yield from self._values(action)
        else:
            yield from self._flags()

    def _flags(self) -> list[str]:
        known = self._parser._option_string_actions
        return sorted(flag for flag in known if flag.startswith("--"))

    def _positional(self) -> argparse.Action | None:
        """The argument at this position; the last may be repeated."""
        declared = [action for action in self._parser._actions if not action.option_strings]
        if self._position < len(declared):
            return declared[self._position]
        return declared[-1] if declared and declared[-1].nargs in ("*", "+") else None

    def _values(self, action: argparse.Action) -> Iterator[str]:
        if action.choices:
            yield from (str(choice) for choice in action.choices if choice != ASKED)
        completed = objects.completed_from(action)
        if completed is not None:
            yield from completed.words
            yield from self._names(completed.sort)

    def _names(self, sort: str) -> list[str]:
        """Names of existing objects, on the server of the line."""
        file = self._given.get("kubeconfig", "")
        arguments = argparse.Namespace(
            kubeconfig=Path(file).expanduser() if file else None,
            context=self._given.get("context", ""),
        )
        try:
            server = connect(arguments)
            page = server.get(objects.NAMES[sort](server), {"limit": str(MOST_NAMES)})
        except (Complaint, RuntimeError):  # RuntimeError: `~` of a user without a home
            return []
        return [name_of(object_) for object_ in page.get("items") or ()]


# bash ends a word at a colon and an equals sign. The text before the last of them is already on the
# line, so it is cut from each suggestion.
BASH: Final = """# bash completion of orchid; load it with: source <(orchid completion bash)
_orchid() {
    local line="${COMP_LINE:0:COMP_POINT}" current there typed
    current="${line##*[[:space:]]}"
    there="${current%"${current##*[:=]}"}"
    read -ra typed <<< "${line%"$current"}"
    mapfile -t COMPREPLY < <(
        orchid completion words "${typed[@]}" "$current" 2>/dev/null </dev/null
    )
    [[ $COMP_WORDBREAKS == *:* ]] && COMPREPLY=("${COMPREPLY[@]#"$there"}")
    return 0
}
complete -o default -F _orchid orchid"""

ZSH: Final = """#compdef orchid
# zsh completion of orchid; load it with: source <(orchid completion zsh)
_orchid() {
    local -a found
    found=("${(@f)$(orchid completion words "${(@)words[1,CURRENT]}" 2>/dev/null </dev/null)}")
    if [[ -n $found[1] ]]; then
        compadd -- "${found[@]}"
    else
        _files
    fi
}
compdef _orchid orchid"""

FISH: Final = """# fish completion of orchid; load it with: orchid completion fish | source
function __orchid_found
    set -l line (commandline -opc) (commandline -ct)
    set -g __orchid_words (orchid completion words $line 2>/dev/null </dev/null)
    test -n "$__orchid_words"
end
complete -c orchid -f -n __orchid_found -a '$__orchid_words'"""

SCRIPTS: Final = {"bash": BASH, "zsh": ZSH, "fish": FISH}
