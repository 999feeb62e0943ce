"""Validation of names, label keys and label values.

Use `subdomain_errors`, `label_errors` and `path_segment_errors` for names, `qualified_name_errors`
and `label_value_errors` for labels. Each returns error messages, none for a valid value. The first
three also take `prefix=True`, for a generateName, so that a kind can declare one of them as its
name rule.

Nothing here raises, and every rule runs in linear time.
"""

import re
from collections.abc import Callable, Mapping

NameRule = Callable[[str, bool], tuple[str, ...]]

_LABEL_TEXT = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN_TEXT = rf"{_LABEL_TEXT}(\.{_LABEL_TEXT})*"
_NAME_PART_TEXT = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"

# The languages of the texts above, written so that no character is examined twice.
_LABEL_PATTERN = r"[a-z0-9]++(?:-++[a-z0-9]++)*+"
_NAME_PART_PATTERN = r"[A-Za-z0-9]++(?:[-_.]++[A-Za-z0-9]++)*+"
_LABEL = re.compile(_LABEL_PATTERN).fullmatch
_SUBDOMAIN = re.compile(rf"{_LABEL_PATTERN}(?:\.{_LABEL_PATTERN})*+").fullmatch
_NAME_PART = re.compile(_NAME_PART_PATTERN).fullmatch
_QUALIFIED = re.compile(
    rf"(?:{_LABEL_PATTERN}(?:\.{_LABEL_PATTERN})*+/)?{_NAME_PART_PATTERN}"
).fullmatch

# If this matches, `label_errors` returns nothing.
LABEL = re.compile(rf"(?=.{{1,63}}\Z){_LABEL_PATTERN}").fullmatch
LABEL_LENGTH = 63
SUBDOMAIN_LENGTH = 253

_NOT_A_LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and "
    "must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used "
    f"for validation is '{_LABEL_TEXT}')"
)
_NOT_A_SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used "
    f"for validation is '{_SUBDOMAIN_TEXT}')"
)
_ALPHANUMERIC = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    "alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for "
    f"validation is '{_NAME_PART_TEXT}')"
)
_NOT_A_KEY = (
    f"a valid label key {_ALPHANUMERIC} with an optional DNS subdomain prefix and '/' "
    "(e.g. 'example.com/MyName')"
)
_NOT_A_VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
    "and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or "
    f"'12345', regex used for validation is '({_NAME_PART_TEXT})?')"
)


def label_errors(name: str, prefix: bool = False) -> tuple[str, ...]:
    """A DNS-1123 label: the rule for namespaces."""
    if prefix:
        name = without_trailing_dash(name)
    if len(name) <= LABEL_LENGTH and _LABEL(name):
        return ()
    problems = _length_error(name, LABEL_LENGTH, "characters")
    if _LABEL(name):
        return problems
    return (*problems, "must not contain dots" if _SUBDOMAIN(name) else _NOT_A_LABEL)


def subdomain_errors(name: str, prefix: bool = False) -> tuple[str, ...]:
    """Labels joined by dots: the rule for most kinds."""
    if prefix:
        name = without_trailing_dash(name)
    elif len(name) <= SUBDOMAIN_LENGTH and _SUBDOMAIN(name):
        return ()
    return _subdomain(name, "characters")


def path_segment_errors(name: str, prefix: bool = False) -> tuple[str, ...]:
    """Any path segment of a URL: the rule for roles."""
    if "/" not in name and "%" not in name:
        return (f"may not be '{name}'",) if name in (".", "..") and not prefix else ()
    return tuple(f"may not contain '{sign}'" for sign in "/%" if sign in name)


def any_name(name: str, prefix: bool = False) -> tuple[str, ...]:
    """No additional rule; the path segment rule applies to every kind."""
    return ()


def qualified_name_errors(key: str) -> tuple[str, ...]:
    """A label key, annotation key or finalizer: a name with an optional DNS subdomain prefix."""
    before, slash, name = key.rpartition("/")
    if "/" in before:
        return (_NOT_A_KEY,)
    problems: tuple[str, ...] = ()
    if slash:
        problems = _prefix_errors(before)
    if len(name) <= LABEL_LENGTH and _NAME_PART(name):
        return problems
    if not name:
        problems = (*problems, "name part must be non-empty")
    problems += tuple(f"name part {text}" for text in _length_error(name, LABEL_LENGTH, "bytes"))
    return problems if _NAME_PART(name) else (*problems, f"name part {_ALPHANUMERIC}")


def label_value_errors(value: str) -> tuple[str, ...]:
    if not value or (len(value) <= LABEL_LENGTH and _NAME_PART(value)):
        return ()
    found = _length_error(value, LABEL_LENGTH, "bytes")
    return found if _NAME_PART(value) else (*found, _NOT_A_VALUE)


def are_labels(labels: Mapping[str, str]) -> bool:
    """Whether all labels are valid. May be False for valid long keys, never True for invalid
    ones.
    """
    for key, value in labels.items():
        if len(key) > LABEL_LENGTH or not _QUALIFIED(key):
            return False
        if value and (len(value) > LABEL_LENGTH or not _NAME_PART(value)):
            return False
    return True


def without_trailing_dash(prefix: str) -> str:
    """A prefix without a final dash, which is valid because more characters follow.

    The character before the dash is removed too, as in Kubernetes; clients rely on it.
    """
    return prefix[:-2] + "a" if len(prefix) > 1 and prefix.endswith("-") else prefix


def _prefix_errors(prefix: str) -> tuple[str, ...]:
    if not prefix:
        return ("prefix part must be non-empty",)
    return tuple(f"prefix part {text}" for text in _subdomain(prefix, "bytes"))


def _subdomain(name: str, unit: str) -> tuple[str, ...]:
    if len(name) <= SUBDOMAIN_LENGTH and _SUBDOMAIN(name):
        return ()
    found = _length_error(name, SUBDOMAIN_LENGTH, unit)
    return found if _SUBDOMAIN(name) else (*found, _NOT_A_SUBDOMAIN)


def _length_error(text: str, most: int, unit: str) -> tuple[str, ...]:
    if len(text.encode("utf-8", "surrogatepass")) <= most:
        return ()
    return (f"must be no more than {most} {unit}",)
