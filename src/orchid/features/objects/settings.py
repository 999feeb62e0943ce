"""Settings of namespaces."""

from typing import Annotated, ClassVar

from orchid.kernel.settings.given import Help, Many
from orchid.kernel.settings.section import Section
from orchid.kernel.settings.values import Choice


class Namespaces(Choice):
    choices = ("lenient", "strict")


class ObjectSettings(Section, frozen=True):
    after: ClassVar = "naming"

    namespaces: Annotated[
        Namespaces,
        Help(
            description="lenient: a namespace is created with its first object; "
            "strict: it must exist."
        ),
    ] = Namespaces("lenient")
    namespace_creators: Annotated[
        Many,
        Help(
            description="Users and groups whose first object creates its namespace, besides those "
            "who may create namespaces; for lenient namespaces only."
        ),
    ] = ()
