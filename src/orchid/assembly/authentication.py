"""Who sends a request: the authenticators of all features, and those of the kernel."""

from collections.abc import Iterator
from contextlib import contextmanager

from orchid.assembly import order
from orchid.assembly.features import FEATURES
from orchid.features.sign_in.parts import OutsideIssuers
from orchid.kernel.access.authenticators.anonymous import (
    AnonymousAuthenticator,
    InvalidAnonymousPath,
)
from orchid.kernel.access.authenticators.bearer import BearerAuthenticator, WebSocketAuthenticator
from orchid.kernel.access.authenticators.union import UnionAuthenticator, UnionTokenAuthenticator
from orchid.kernel.context import Context
from orchid.kernel.credentials.refusals import Refusal
from orchid.kernel.settings.errors import BadSettings
from orchid.kernel.settings.given import Given


def token_authenticator(context: Context) -> UnionTokenAuthenticator:
    """The authenticators of bearer tokens, in the order in which they are asked."""
    return UnionTokenAuthenticator(
        [
            authenticator
            for feature in order.by_name(FEATURES, order.TOKENS)
            if feature.token_authenticators is not None
            for authenticator in feature.token_authenticators(context)
        ]
    )


def authenticator(context: Context) -> UnionAuthenticator:
    """The authenticators of requests; those of connections before those of headers."""
    tokens, audiences = context.tokens, context.settings.api_audiences
    of_features = [
        member
        for feature in FEATURES
        if feature.authenticators is not None
        for member in feature.authenticators(context)
    ]
    return UnionAuthenticator(
        [
            *of_features,
            BearerAuthenticator(tokens, audiences),
            WebSocketAuthenticator(tokens, audiences, context.naming),
            # Callers in this process present no credential, so they are checked last.
            context.callers,
        ],
        audiences,
        AnonymousAuthenticator(_anonymous_paths(context)),
    )


def _anonymous_paths(context: Context) -> tuple[str, ...]:
    """The paths that anonymous requests may use; raises BadSettings."""
    options, configured = context.settings.given, context.port(OutsideIssuers).anonymous_paths
    of_features = tuple(
        path
        for feature in FEATURES
        if feature.anonymous_paths is not None
        for path in feature.anonymous_paths(context)
    )
    if of_features and configured == ():
        raise BadSettings(
            "--token-exchange-config: clients of the exchange are anonymous, which "
            "--authentication-config forbids"
        )
    if configured is None:
        return (*options.anonymous_paths, *of_features)
    if options.anonymous_paths != Given().anonymous_paths:
        raise BadSettings(
            "--anonymous-paths: not to be given when --authentication-config speaks of "
            "anonymous callers"
        )
    return (*configured, *of_features)


@contextmanager
def as_bad_settings() -> Iterator[None]:
    """Convert errors for the operator into BadSettings: a key open to others, a missing file."""
    try:
        yield
    except (Refusal, InvalidAnonymousPath) as problem:
        raise BadSettings(str(problem)) from None
