"""Sections of settings are joined in one order."""

from typing import ClassVar

import msgspec

from orchid.kernel.settings.given import Given
from orchid.kernel.settings.section import Section, joined


class First(Section, frozen=True):
    after: ClassVar = "api-audiences"

    first_a: str = ""
    first_b: str = ""


class Second(Section, frozen=True):
    after: ClassVar = "api-audiences"

    second: str = ""


class Within(Section, frozen=True):
    after: ClassVar = "first-a"

    within: str = ""


def test_a_section_follows_a_setting_of_the_kernel_or_of_another_section() -> None:
    """Several that follow one setting are in the order of the list."""
    names = [field.encode_name for field in msgspec.structs.fields(joined((Within, First, Second)))]

    start = names.index("api-audiences")
    assert names[start + 1 : start + 5] == ["first-a", "within", "first-b", "second"]
    assert len(names) == len(msgspec.structs.fields(Given)) + 4
