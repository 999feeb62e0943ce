"""Ask two servers the same random questions and print where their answers differ.

    python -m tests.comparison https://127.0.0.1:6443 https://127.0.0.1:7443 \\
        --tokens tests/conformance/tokens.csv --requests 5000 --seed 1

Both must speak the names of Kubernetes (`--naming kubernetes`), accept the tokens of the file (the
first user may do everything), and run no controllers, which would change objects in between; Orchid
beside another server also wants `--namespaces strict`. The seed decides every request. Differences
are printed by class, the most frequent first, with one example of each; decisions.py names the
classes that are meant. Ends with exit code 1 if others are left.

Never use it on a server whose objects matter: it creates, changes and deletes.
"""

import argparse
import csv
import json
import random
import sys
from collections import Counter
from pathlib import Path

from tests.comparison.comparing import Comparison
from tests.comparison.found import Found
from tests.comparison.grammar import Grammar
from tests.comparison.operations import common_operations
from tests.comparison.sending import Client

SHOWN = 2000  # characters of an example


def main() -> int:
    options = parsed()
    tokens = read_tokens(options.tokens)
    first, second = Client(options.first), Client(options.second)
    admin = next(iter(tokens.values()))
    operations, missing = common_operations(first, second, admin)
    wanted = options.resources.split(",") if options.resources else []
    operations = [one for one in operations if not wanted or one.resource in wanted]
    tag = options.tag or f"c{random.SystemRandom().randrange(36**4):x}"
    print(f"seed {options.seed}, tag {tag}, {len(operations)} operations; the first has besides:")
    print(f"  {missing or 'nothing'}")
    grammar = Grammar(operations, tokens, tag, options.seed)
    comparison = Comparison((first, second), admin, tag)
    comparison.prepare(grammar.namespaces, grammar.rights())
    for _ in range(options.requests):
        comparison.ask(grammar.request())
    return report(comparison.found, options.requests)


def parsed() -> argparse.Namespace:
    as_written = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=as_written)
    parser.add_argument("first")
    parser.add_argument("second")
    parser.add_argument("--tokens", type=Path, required=True, help="CSV: token,user,uid,groups")
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tag", default="", help="a part of all names of this run")
    parser.add_argument("--resources", default="", help="only these, like secrets,pods/status")
    return parser.parse_args()


def read_tokens(path: Path) -> dict[str, str]:
    with path.open() as file:
        return {row[1]: row[0] for row in csv.reader(file) if len(row) > 1}


def report(found: dict[tuple[str, str], Found], requests: int) -> int:
    """Print what was found; decisions are counted, the rest is shown."""
    ordered = sorted(found.items(), key=lambda item: -item[1].count)
    decided: Counter[str] = Counter()
    classes = differing = 0
    for (name, decision), one in ordered:
        if decision:
            decided[decision] += one.count
            continue
        classes, differing = classes + 1, differing + one.count
        print(f"\n{one.count} x {name}\n{example(one)}")
    print("\nDecided, or listed with a reason:")
    for decision, count in decided.most_common():
        print(f"  {count} x {decision}")
    alike = requests - differing - decided.total()
    print(
        f"{requests} requests: {alike} alike, {decided.total()} differ for a known reason, "
        f"{differing} otherwise, in {classes} classes"
    )
    return 1 if classes else 0


def example(one: Found) -> str:
    request = one.asked.request
    body = (request.body or b"").decode(errors="replace")
    lines = [
        f"  {request.method} {request.target} {dict(request.headers)}",
        f"  {body[:SHOWN]}" if body else "",
        f"  first:  {json.dumps(one.answers[0])[:SHOWN]}",
        f"  second: {json.dumps(one.answers[1])[:SHOWN]}",
    ]
    return "\n".join(line for line in lines if line)


if __name__ == "__main__":
    sys.exit(main())
