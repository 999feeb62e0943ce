"""Subjects of other issuers that somebody else can obtain later.

A name of a repository or a project can be given to another owner after it was renamed or deleted;
its id is never given again. `takeover_risks` returns what a policy that compares these claims
leaves open, as sentences for its author.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple


class KnownIssuer(NamedTuple):
    """An issuer by its URL, by the form of its subjects, or by claims that only its tokens have."""

    name: str
    urls: tuple[str, ...]
    suffixes: tuple[str, ...]  # of the URLs of installations
    subjects: str  # prefix of the claim sub
    claims: frozenset[str]  # names that can be reused
    ids: tuple[str, ...]  # claims whose values are never given again


GITHUB: Final = KnownIssuer(
    "GitHub",
    ("https://token.actions.githubusercontent.com",),
    ("/_services/token", ".ghe.com"),
    "repo:",
    frozenset({"repository", "repository_owner", "job_workflow_ref", "workflow_ref"}),
    ("repository_id", "repository_owner_id"),
)
GITLAB: Final = KnownIssuer(
    "GitLab",
    ("https://gitlab.com",),
    (),
    "project_path:",
    frozenset({"project_path", "namespace_path"}),
    ("project_id", "namespace_id"),
)
PROTECTED: Final = ("ref_protected", "environment_protected")
# A subject can be given to somebody else; every token that is exchanged has an audience of ours.
WEAK: Final = frozenset({"sub", "aud"})


def takeover_risks(issuer: str, claims: Mapping[str, str]) -> Iterator[str]:
    """Claims that a policy must also compare; strict servers refuse it otherwise."""
    if not claims.keys() - WEAK:
        yield "compare another claim besides sub and aud, such as an id that is never given again"
    provider = known_issuer(issuer, claims)
    if provider is not None and claims.keys().isdisjoint(provider.ids):
        yield (
            f"compare {' or '.join(provider.ids)}: names at {provider.name} can be given "
            "to another owner"
        )


def advice(issuer: str, claims: Mapping[str, str]) -> Iterator[str]:
    """Claims that a policy should also compare, unless their absence is intended."""
    if known_issuer(issuer, claims) is GITLAB and claims.keys().isdisjoint(PROTECTED):
        # Only the names of claims say what another address is.
        condition = "" if issuer in GITLAB.urls else "if this is a GitLab server, "
        yield (
            f"{condition}compare ref_protected: otherwise everybody who can push a branch to the "
            "project gets a token of the account"
        )


def known_issuer(issuer: str, claims: Mapping[str, str]) -> KnownIssuer | None:
    for provider in (GITHUB, GITLAB):
        if issuer in provider.urls or issuer.startswith(tuple(f"{url}/" for url in provider.urls)):
            return provider
        if issuer.endswith(provider.suffixes):
            return provider
    for provider in (GITHUB, GITLAB):
        if not provider.claims.isdisjoint(claims) or not claims.keys().isdisjoint(provider.ids):
            return provider
        if claims.get("sub", "").startswith(provider.subjects):
            return provider
    return None
