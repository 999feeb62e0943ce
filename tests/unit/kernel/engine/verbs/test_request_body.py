"""From a body to an object: what it may leave out, what must fit, what is reported."""

import dataclasses

import pytest

from orchid.kernel.engine.verbs.request_body import decode_object
from orchid.kernel.wire.errors import BadRequest
from tests.unit.kernel.engine.world import Engine


def decode(world: Engine, body: bytes, *, yaml: bool = False, **options: str) -> object:
    request = world.ask("create", world.accounts, **options)
    found = decode_object(world.catalog, world.accounts, body, request, yaml=yaml)
    return (found.kind, found.api_version, found.name, tuple(request.warnings))


@pytest.mark.parametrize(
    "body",
    [
        b'{"metadata":{"name":"a"}}',
        b'{"kind":"ServiceAccount","metadata":{"name":"a"}}',
        b'{"apiVersion":"v1","metadata":{"name":"a"}}',
        b'{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"a"}}',
    ],
)
async def test_kind_and_version_may_be_left_out(world: Engine, body: bytes) -> None:
    """The endpoint fills in what is missing."""
    assert decode(world, body) == ("ServiceAccount", "v1", "a", ())


async def test_yaml_is_as_good(world: Engine) -> None:
    """The same object in the other form."""
    assert decode(world, b"metadata:\n  name: a\n", yaml=True) == ("ServiceAccount", "v1", "a", ())


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "(must be of type ServiceAccount): couldn't get version/kind; json parse error: "),
        (b"{" + b"x" * 50, "({" + "x" * 29 + " ...)"),
        (b"\x01\x02", "(0102)"),
        (b'{"apiVersion":"a/b/c"}', "unexpected GroupVersion string: a/b/c"),
        (
            b'{"kind":"ConfigMap","apiVersion":"v1"}',
            'ConfigMap in version "v1" cannot be handled as a ServiceAccount',
        ),
        (
            b'{"kind":"ServiceAccount","apiVersion":"v2"}',
            'no kind "ServiceAccount" is registered for version "v2"',
        ),
        (b'{"metadata":{"name":{}}}', "cannot be handled as a ServiceAccount: "),
        (b'{"metadata":{"creationTimestamp":"soon"}}', "cannot be handled as a ServiceAccount: "),
    ],
)
async def test_what_does_not_fit_is_refused(world: Engine, body: bytes, message: str) -> None:
    """Each body that is no object of the kind is a 400 that says how far it was understood."""
    with pytest.raises(BadRequest) as refused:
        decode(world, body)

    assert message in str(refused.value)


async def test_a_version_that_clients_know_is_named(world: Engine) -> None:
    """It is the right kind, sent to the wrong place."""
    kind = dataclasses.replace(world.accounts, known_versions=("v1beta1",))
    body = b'{"kind":"ServiceAccount","apiVersion":"v1beta1"}'
    with pytest.raises(BadRequest) as refused:
        decode_object(world.catalog, kind, body, world.ask("create", kind))

    assert str(refused.value) == (
        "the API version in the data (v1beta1) does not match the expected API version (v1)"
    )


async def test_fields_of_another_kind_are_not_reported(world: Engine) -> None:
    """That it is another kind says it all."""
    request = world.ask("create", world.accounts, field_validation="Warn")
    with pytest.raises(BadRequest, match="cannot be handled as a ServiceAccount"):
        decode_object(
            world.catalog, world.accounts, b'{"kind":"Other","apiVersion":"v1","x":1}', request
        )

    assert not request.warnings


async def test_unknown_and_repeated_fields(world: Engine) -> None:
    """Warn by default, refuse when strict, say nothing when asked to ignore."""
    body = b'{"metadata":{"name":"b","name":"a"},"foo":{"bar":1}}'
    with pytest.raises(BadRequest) as refused:
        decode(world, body, field_validation="Strict")

    assert decode(world, body)[3] == (
        'duplicate field "metadata.name"',
        'unknown field "foo"',
    )
    assert str(refused.value).endswith(
        'strict decoding error: duplicate field "metadata.name", unknown field "foo"'
    )
    assert decode(world, body, field_validation="Ignore")[3] == ()
