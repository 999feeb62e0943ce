"""Label selectors as objects carry them: their fields, their errors, and what they select."""

from collections.abc import Iterator, Mapping
from typing import Annotated

from msgspec import field

from orchid.kernel.wire.fields import FieldError, Path, forbidden, invalid, required
from orchid.kernel.wire.rules.names import label_value_errors, qualified_name_errors
from orchid.kernel.wire.selectors.requirements import LabelSelectorRequirement
from orchid.kernel.wire.struct import Wire, describe, proto


class LabelSelector(Wire):
    """Conditions on labels that must all hold; without any, it selects everything."""

    published_as = "meta.v1.LabelSelector"
    atomic = True

    match_labels: Annotated[
        dict[str, str], proto(1), describe("Labels that must have these values.")
    ] = field(default_factory=dict)
    match_expressions: Annotated[
        tuple[LabelSelectorRequirement, ...], proto(2), describe("Further conditions on labels.")
    ] = ()


def conditions_of(selector: LabelSelector) -> int:
    values = (1 + len(requirement.values) for requirement in selector.match_expressions)
    return 1 + len(selector.match_labels) + sum(values)


def selector_errors(selector: LabelSelector, path: Path) -> Iterator[FieldError]:
    labels = path / "matchLabels"
    for key, value in selector.match_labels.items():
        yield from (invalid(labels, key, text) for text in qualified_name_errors(key))
        yield from (invalid(labels, value, text) for text in label_value_errors(value))
    for index, requirement in enumerate(selector.match_expressions):
        yield from requirement_errors(requirement, (path / "matchExpressions")[index])


def requirement_errors(requirement: LabelSelectorRequirement, path: Path) -> Iterator[FieldError]:
    values = path / "values"
    if requirement.operator in ("In", "NotIn"):
        if not requirement.values:
            yield required(values, "must be specified when `operator` is 'In' or 'NotIn'")
    elif requirement.operator in ("Exists", "DoesNotExist"):
        if requirement.values:
            text = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            yield forbidden(values, text)
    else:
        yield invalid(path / "operator", requirement.operator, "not a valid selector operator")
    for text in qualified_name_errors(requirement.key):
        yield invalid(path / "key", requirement.key, text)
    for index, value in enumerate(requirement.values):
        yield from (invalid(values[index], value, text) for text in label_value_errors(value))


def selects(selector: LabelSelector, labels: Mapping[str, str]) -> bool:
    if any(labels.get(key) != value for key, value in selector.match_labels.items()):
        return False
    return all(meets(requirement, labels) for requirement in selector.match_expressions)


def meets(requirement: LabelSelectorRequirement, labels: Mapping[str, str]) -> bool:
    key, present = requirement.key, requirement.key in labels
    match requirement.operator:
        case "In":
            return present and labels[key] in requirement.values
        case "NotIn":
            return not present or labels[key] not in requirement.values
        case "Exists":
            return present
        case "DoesNotExist":
            return not present
        case _:
            return False  # what cannot be read selects nothing
