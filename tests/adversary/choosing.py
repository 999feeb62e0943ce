"""Which operation comes next: at random, but related to the ones before, on few names.

For some operations the chooser stays with one theme and one authority, so that an attack of several
steps can come about. Mostly somebody acts who has the right by the model; sometimes anybody, or a
thief with a copied credential. No attack is written here: each function of drawing/ draws one
operation on one kind of object from what exists.
"""

import random
from collections.abc import Callable, Collection, Sequence

from tests.adversary.acts import Attack
from tests.adversary.drawing.acme import AcmeClients
from tests.adversary.drawing.anything import Anything
from tests.adversary.drawing.base import AUTHORITIES
from tests.adversary.drawing.clusters import ClusterServers
from tests.adversary.drawing.requests import Requests
from tests.adversary.drawing.revocations import RevocationOperations
from tests.adversary.drawing.servers import Home
from tests.adversary.operations import Operation

ODD_AUTHORITIES = ("tokens-{}", "web-{}", "cluster-{}")
THEMES = ("authorities", "requests", "tokens", "lists", "acme")
Draw = Callable[[], Operation | None]


class Chooser(
    AcmeClients,
    Anything,
    ClusterServers,
    Requests,
    RevocationOperations,
    Home,
):
    """Draws operations from the seed and from what the observer sees."""

    def __init__(
        self, attack: Attack, chance: random.Random, themes: Collection[str] = THEMES
    ) -> None:
        super().__init__(attack, chance)
        self._theme: Sequence[tuple[Draw, float]] = ()
        self._left = 0  # operations until another theme
        every: dict[str, tuple[Sequence[tuple[Draw, float]], float]] = {
            "authorities": (self._about_authorities(), 10),
            "requests": (self._about_requests(), 3),
            "tokens": (self._about_tokens(), 3),
            "lists": (self._about_lists(), 2),
            "acme": (self._about_acme(), 3),
        }
        self._themes = [theme for name, theme in every.items() if name in themes]

    def next(self) -> Operation:
        while True:
            if self._left <= 0:
                self._change_theme()
            self._left -= 1
            if self._chance.random() < 0.1:  # another one, which may be its parent
                self._authority = self._chance.choice(AUTHORITIES)
            theme = self._always if self._chance.random() < 0.08 else self._theme
            draw = self._chance.choices([one for one, _ in theme], [one for _, one in theme])[0]
            operation = draw()
            if operation is not None:
                self._number += 1
                return self._otherwise(operation)

    def _change_theme(self) -> None:
        self._left = self._chance.randint(8, 30)
        themes, weights = zip(*self._themes, strict=True)
        self._theme = self._chance.choices(themes, weights)[0]
        self._authority = self._chance.choice(AUTHORITIES)
        if self._chance.random() < 0.08:
            form = self._chance.choice(ODD_AUTHORITIES)
            self._authority = form.format(self._chance.randint(2, 4))

    @property
    def _always(self) -> Sequence[tuple[Draw, float]]:
        return (
            (self._read, 4),
            (self._watch, 1),
            (self._patch_any, 2),
            (self._delete_any, 1),
            (self._again, 3),
            (self._restart, 1),
            (self._fail_over, 1),
            (self._backup, 1),
            (self._restore, 1),
            (self._lift, 4),
            (self._cluster_says, 1),
            (self._cluster_issues, 2),
        )

    def _about_authorities(self) -> Sequence[tuple[Draw, float]]:
        return (
            (self._create_authority, 8),
            (self._delete_authority, 5),
            (self._create_key, 5),
            (self._step, 5),
            (self._revoke_key, 3),
            (self._lift, 3),
            (self._delete_key, 4),
            (self._write_status, 2),
            (self._install_chain, 4),
            (self._create_secret, 4),
            (self._replace_secret, 2),
            (self._bundle, 1),
            (self._request, 1),
            (self._approve, 1),
        )

    def _about_requests(self) -> Sequence[tuple[Draw, float]]:
        return (
            (self._policy, 2),
            (self._request, 6),
            (self._approve, 5),
            (self._sign, 1),
            (self._delete_request, 2),
            (self._create_authority, 1),
        )

    def _about_tokens(self) -> Sequence[tuple[Draw, float]]:
        return (
            (self._account, 3),
            (self._token, 5),
            (self._revoke, 5),
            (self._give_back, 3),
            (self._client_request, 4),
            (self._approve, 4),
            (self._delete_request, 1),
            (self._use, 1),
            (self._lift, 2),
            (self._create_key, 1),
            (self._step, 1),
            (self._delete_key, 1),
            (self._revoke_key, 1),
        )

    def _about_acme(self) -> Sequence[tuple[Draw, float]]:
        return (
            (self._create_authority, 2),
            (self._account, 2),
            (self._external_key, 2),
            (self._register, 2),
            (self._order, 4),
            (self._finalize, 5),
            (self._request_of_order, 4),
            (self._approve, 6),
            (self._fetch, 1),
            (self._cluster_issues, 0.5),
            (self._token, 3),
            (self._policy, 1),
            (self._delete_request, 1),
            (self._revoke, 1),
        )

    def _about_lists(self) -> Sequence[tuple[Draw, float]]:
        return (
            (self._client_request, 2),
            (self._approve, 2),
            (self._revoke, 3),
            (self._write_back, 5),
            (self._delete_map, 2),
            (self._wait, 1),
        )
