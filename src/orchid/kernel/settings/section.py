"""Section: the settings of one feature, declared in its folder.

A setting is one field with its help text: the command line, the TOML file and the documentation
all use it. Types of values.py parse it while it is read. `joined` adds the fields of all sections
to those of the kernel, as one type; `Given.of` returns one section of it.
"""

import typing
from collections.abc import Iterable
from typing import Any, ClassVar, cast

import msgspec

from orchid.kernel.settings.errors import BadSettings
from orchid.kernel.settings.given import Given, Written

Field = tuple[str, Any, Any]  # name, type and default


class Section(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """The settings of a feature; a subclass has the fields."""

    after: ClassVar[str]  # the setting behind which these are listed, of the kernel or a section

    def refuse_contradictions(self, given: Given) -> None:
        """Raise BadSettings if values contradict each other, or those of the kernel."""


def go_together(settings: msgspec.Struct, first: str, second: str) -> None:
    """Refuse one of two settings without the other."""
    if bool(getattr(settings, first)) != bool(getattr(settings, second)):
        flags = (f"--{name.replace('_', '-')}" for name in (first, second))
        raise BadSettings(f"{' and '.join(flags)} go together")


def joined(sections: Iterable[type[Section]]) -> type[Given]:
    """Every setting: those of the kernel and of these sections."""
    sections = tuple(sections)
    fields: list[Field] = []

    def add(type_: type[msgspec.Struct]) -> None:
        for field in _fields(type_):
            fields.append(field)
            for section in sections:
                if section.after == field[0].replace("_", "-"):
                    add(section)

    add(Given)
    type_ = msgspec.defstruct(
        Given.__name__,
        fields,
        bases=(Written,),  # not Given: its fields would come first
        module=__name__,
        namespace={"sections": sections},
        frozen=True,
    )
    return cast("type[Given]", type_)


def _fields(type_: type[msgspec.Struct]) -> Iterable[Field]:
    hints = typing.get_type_hints(type_, include_extras=True)
    for field in msgspec.structs.fields(type_):
        yield field.name, hints[field.name], field.default
