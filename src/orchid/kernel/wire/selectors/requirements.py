"""Conditions of selectors in object form, as opposed to text."""

from typing import Annotated

from msgspec import field

from orchid.kernel.wire.struct import Wire, at_most, describe, proto

MOST_VALUES = 1000  # of one condition


class SelectorRequirement(Wire):
    """A condition of a selector."""

    key: Annotated[str, proto(1), describe("The field or label.")] = field(default_factory=str)
    operator: Annotated[str, proto(2), describe("In, NotIn, Exists or DoesNotExist.")] = field(
        default_factory=str
    )
    values: Annotated[
        tuple[str, ...], at_most(MOST_VALUES), proto(3), describe("The values to compare with.")
    ] = ()


class FieldSelectorRequirement(SelectorRequirement):
    """A condition on a field."""

    published_as = "meta.v1.FieldSelectorRequirement"


class LabelSelectorRequirement(SelectorRequirement):
    """A condition on a label."""

    published_as = "meta.v1.LabelSelectorRequirement"
