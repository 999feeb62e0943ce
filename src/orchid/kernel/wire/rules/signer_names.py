"""Validation of signer names: `example.com/signer-name`.

Start with `signer_name_errors`, the rule for requests and trust bundles. It yields the errors in
the order and with the messages of Kubernetes. It does not check that the signer exists: anyone may
run a signer under their own domain. `custom_signer_errors` is the rule for authorities.
"""

import re
from collections.abc import Callable, Iterator

from orchid.kernel.wire.fields import FieldError, Path, invalid, required, too_long
from orchid.kernel.wire.naming import PLATFORM_DOMAINS
from orchid.kernel.wire.rules.names import SUBDOMAIN_LENGTH, label_errors, subdomain_errors
from orchid.kernel.wire.text import quote

SIGNER_NAME_LENGTH = 571  # a domain, a slash, and a path of a subdomain and a label
_LEAST_DOMAIN_LABELS = 2
# An error repeats a name several times; a name beyond this length is not repeated.
LONGEST_SHOWN = 8 * 1024

# Fast path for normal names; other names are validated part by part.
_LABEL = r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?"
_is_usual = re.compile(
    rf"(?=.{{1,253}}\Z){_LABEL}(?:\.{_LABEL})+/{_LABEL}(?:\.{_LABEL})*"
).fullmatch

_NOT_QUALIFIED = "must be a fully qualified domain and path of the form 'example.com/signer-name'"
_TOO_FEW_LABELS = "should be a domain with at least two segments separated by dots"


def signer_name_errors(path: Path, name: str) -> Iterator[FieldError]:
    """Validate a signer name; an empty one is reported as missing."""
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


def custom_signer_errors(path: Path, name: str) -> Iterator[FieldError]:
    """Validate the name of a custom signer: the domains of the platform, of either naming, are
    reserved.
    """
    yield from signer_name_errors(path, name)
    domain = name.partition("/")[0]
    if any(domain == taken or domain.endswith(f".{taken}") for taken in PLATFORM_DOMAINS):
        text = "this domain belongs to the platform: name the signer under a domain of your own"
        yield invalid(path, name, text)


def _domain_errors(path: Path, domain: str) -> Iterator[FieldError]:
    if _bytes(domain) > SUBDOMAIN_LENGTH:
        yield too_long(path, SUBDOMAIN_LENGTH)
    yield from _label_errors(path, domain, label_errors)
    if domain.count(".") + 1 < _LEAST_DOMAIN_LABELS:
        yield invalid(path, domain, _TOO_FEW_LABELS)


def _label_errors(
    path: Path, dotted: str, rule: Callable[[str], tuple[str, ...]]
) -> Iterator[FieldError]:
    """Report only the first invalid label, with all its errors."""
    for label in dotted.split("."):
        if problems := rule(label):
            for problem in problems:
                yield invalid(path, dotted, f"validating label {quote(label)}: {problem}")
            return


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))
