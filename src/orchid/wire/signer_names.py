"""What the name of a signer may look like: `example.com/signer-name`.

Start with `signer_name_errors`, the one rule for requests and trust bundles. It yields everything
wrong with a name, in the order and the words that clients know, and yields nothing about whether
such a signer exists: anybody may be a signer under a domain of their own.
"""

import re
from collections.abc import Callable, Iterator

from orchid.wire.fields import FieldError, Path, invalid, required, too_long
from orchid.wire.rules.names import SUBDOMAIN_LENGTH, label_errors, subdomain_errors
from orchid.wire.text import quote

SIGNER_NAME_LENGTH = 571  # a domain, a slash, and a path of a subdomain and a label
_LEAST_DOMAIN_LABELS = 2
# A refusal repeats a name several times; one that is far too long is not repeated at all.
LONGEST_SHOWN = 8 * 1024

# The usual name, known at a glance; whatever does not look like it is judged part by part.
_LABEL = r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?"
_is_usual = re.compile(
    rf"(?=.{{1,253}}\Z){_LABEL}(?:\.{_LABEL})+/{_LABEL}(?:\.{_LABEL})*"
).fullmatch

_NOT_QUALIFIED = "must be a fully qualified domain and path of the form 'example.com/signer-name'"
_TOO_FEW_LABELS = "should be a domain with at least two segments separated by dots"


def signer_name_errors(path: Path, name: str) -> Iterator[FieldError]:
    """Say what is wrong with a signer's name; an empty one is missing."""
    if _is_usual(name):
        return
    if not name:
        yield required(path)
        return
    size = _bytes(name)
    if size > LONGEST_SHOWN:
        yield too_long(path, SIGNER_NAME_LENGTH)
        return
    if name.count("/") != 1:
        yield invalid(path, name, _NOT_QUALIFIED)
        return
    domain, _, rest = name.partition("/")
    yield from _domain_errors(path, domain)
    yield from _label_errors(path, rest, subdomain_errors)
    if size > SIGNER_NAME_LENGTH:
        yield too_long(path, SIGNER_NAME_LENGTH)


def _domain_errors(path: Path, domain: str) -> Iterator[FieldError]:
    if _bytes(domain) > SUBDOMAIN_LENGTH:
        yield too_long(path, SUBDOMAIN_LENGTH)
    yield from _label_errors(path, domain, label_errors)
    if domain.count(".") + 1 < _LEAST_DOMAIN_LABELS:
        yield invalid(path, domain, _TOO_FEW_LABELS)


def _label_errors(
    path: Path, dotted: str, rule: Callable[[str], tuple[str, ...]]
) -> Iterator[FieldError]:
    """Tell of the first bad label alone, with all that is wrong with it."""
    for label in dotted.split("."):
        if problems := rule(label):
            for problem in problems:
                yield invalid(path, dotted, f"validating label {quote(label)}: {problem}")
            return


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))
