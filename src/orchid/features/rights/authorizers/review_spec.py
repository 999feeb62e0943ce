"""A request as the spec of a SubjectAccessReview, for webhooks and their conditions.

`spec_of` omits empty members, as Kubernetes does in its calls; `condition_input` has every member,
so that a condition needs no test for each.
"""

from typing import Any, Final

from orchid.kernel.engine.request import Target
from orchid.kernel.wire.errors import BadRequest
from orchid.kernel.wire.selectors.selection import FieldMatcher, LabelMatcher, Operator
from orchid.kernel.wire.user import UserInfo

_PLACE: Final = ("namespace", "verb", "group", "version", "resource", "subresource", "name")
_ATTRIBUTES: Final = frozenset({"resourceAttributes", "nonResourceAttributes"})
_OPERATORS: Final = {
    Operator.IN: "In",
    Operator.EQUALS: "In",
    Operator.DOUBLE_EQUALS: "In",
    Operator.NOT_IN: "NotIn",
    Operator.NOT_EQUALS: "NotIn",
    Operator.EXISTS: "Exists",
    Operator.ABSENT: "DoesNotExist",
}


def spec_of(user: UserInfo, target: Target, version: str) -> dict[str, Any]:
    """The spec without empty members."""
    spec = condition_input(user, target)
    if version != "v1":
        spec["group"] = spec.pop("groups")  # the name in the older version
    for part in _ATTRIBUTES & spec.keys():
        spec[part] = filled(spec[part])
    return filled(spec)


def condition_input(user: UserInfo, target: Target) -> dict[str, Any]:
    """The variable `request` of a condition."""
    spec: dict[str, Any] = {
        "user": user.username,
        "uid": user.uid,
        "groups": user.groups,
        "extra": user.extra,
    }
    if not target.is_resource:
        spec["nonResourceAttributes"] = {"path": target.path, "verb": target.verb}
        return spec
    selectors = {
        "fieldSelector": field_conditions(target.field_selector),
        "labelSelector": label_conditions(target.label_selector),
    }
    spec["resourceAttributes"] = {
        **{member: getattr(target, member) for member in _PLACE},
        **filled(selectors),
    }
    return spec


def filled(members: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value}


def field_conditions(text: str) -> dict[str, Any]:
    """A field selector as requirements; an invalid one is omitted, which asks for more objects."""
    try:
        terms = FieldMatcher.parse(text).terms
    except BadRequest:
        return {}
    conditions = [
        {"key": term.field, "operator": "In" if term.operator == "=" else "NotIn",
         "values": [term.value]}
        for term in terms
    ]  # fmt: skip
    return {"requirements": conditions} if conditions else {}


def label_conditions(text: str) -> dict[str, Any]:
    try:
        requirements = LabelMatcher.parse(text).requirements
    except BadRequest:
        return {}
    conditions = [
        filled(
            {
                "key": requirement.key,
                "operator": _OPERATORS[requirement.operator],
                "values": requirement.values,
            }
        )
        for requirement in requirements
        if requirement.operator in _OPERATORS
    ]
    return {"requirements": conditions} if conditions else {}
