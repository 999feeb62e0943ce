"""Parts that features offer each other, by type."""

from typing import Any

import pytest

from orchid.kernel.context import Context, MissingPart


class Revocations:
    pass


class Issuer:
    def __init__(self, revocations: Revocations | None) -> None:
        self.revocations = revocations


@pytest.fixture
def context() -> Context:
    """A context whose parts need nothing else of a server."""
    nothing: Any = None
    settings = type("Settings", (), {"naming": None})()
    return Context(
        settings,
        nothing,
        nothing,
        nothing,
        clock=nothing,
        randomness=nothing,
        offload=nothing,
        kinds=(),
    )


def test_a_part_is_built_once(context: Context) -> None:
    """The order in which parts are offered is not that in which they are needed."""
    context.provide(Issuer, lambda context: Issuer(context.port(Revocations)))
    context.provide(Revocations, lambda _: Revocations())

    issuer = context.port(Issuer)

    assert issuer.revocations is context.port(Revocations)
    assert context.port(Issuer) is issuer


def test_a_part_that_nobody_offers_is_named(context: Context) -> None:
    """A server with a feature too few says at its start what is missing."""
    context.provide(Issuer, lambda context: Issuer(context.port(Revocations)))

    with pytest.raises(MissingPart, match="no feature of this server provides Revocations"):
        context.port(Issuer)


def test_an_optional_part_may_be_missing(context: Context) -> None:
    """A part that the settings do not ask for is None, as one that nobody offers."""
    context.provide(Issuer, lambda context: None)

    assert context.optional(Issuer) is None
    assert context.optional(Revocations) is None
    with pytest.raises(MissingPart, match="Issuer"):
        context.port(Issuer)


def test_parts_that_need_each_other_are_named(context: Context) -> None:
    """A circle is an error with its members, not a recursion without end."""
    context.provide(Issuer, lambda context: Issuer(context.port(Revocations)))

    def revocations(context: Context) -> Revocations:
        context.port(Issuer)
        return Revocations()

    context.provide(Revocations, revocations)

    with pytest.raises(MissingPart, match="Issuer needs Revocations needs Issuer"):
        context.port(Issuer)
