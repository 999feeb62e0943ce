"""`orchid key`: which key signs next, whose certificates are renewed, and what is refused."""

import copy
from argparse import Namespace
from typing import Any

import pytest

from orchid.features.token_keys.commands import key_steps
from orchid.features.token_keys.commands.key_steps import rotate
from orchid.kernel.terminal.connection import CommandRefused
from orchid.kernel.terminal.output import Complaint
from tests.unit.kernel.terminal.api_server import ApiServer

CHOSEN = {"hurry": False, "wait": 0, "output": "text", "yes": True, "name": "tokens-1"}


def signing_key(name: str, state: str, authority: str = "", **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"state": state, "authority": authority, **spec}}


class Keys(ApiServer):
    """Stores a key that is put, after so many conflicts."""

    def __init__(self, *keys: dict[str, Any], conflicts: int = 0) -> None:
        super().__init__()
        self.lists["signingkeys"] = list(keys)
        self.objects = {one["metadata"]["name"]: one for one in keys}
        self._conflicts = conflicts

    def get(self, url: str) -> dict[str, Any]:
        return copy.deepcopy(super().get(url))

    def put(self, url: str, body: dict[str, Any]) -> dict[str, Any]:
        self._refuse("put", url)
        if self._conflicts:
            self._conflicts -= 1
            raise CommandRefused(409, "changed")
        self.changes.append(("put", url.rsplit("/", 1)[-1], dict(body["spec"])))
        return body

    def post(self, url: str, body: dict[str, Any], *, warnings: bool = True) -> dict[str, Any]:
        made = {**super().post(url, body, warnings=warnings), "metadata": body["metadata"]}
        made["spec"].setdefault("state", "Published")
        self.objects[body["metadata"]["name"]] = made
        return made


def changed(server: Keys) -> list[tuple[str, str]]:
    return [(name, spec["state"]) for method, name, spec in server.changes if method == "put"]


def asked(**options: Any) -> Namespace:
    return Namespace(**{**CHOSEN, **options})


def test_the_next_key_is_the_published_one_with_the_lowest_number() -> None:
    """By number, not by text; those of an authority sign no tokens, and the reverse."""
    server: Any = Keys(
        signing_key("tokens-10", "Published"),
        signing_key("tokens-9", "Published"),
        signing_key("tokens-8", "Active"),
        signing_key("web-2", "Published", "web"),
        signing_key("mail-1", "Published", "mail"),
    )

    rotate(asked(), server)
    rotate(asked(), server, "web")

    assert changed(server) == [("tokens-9", "Active"), ("web-2", "Active")]


def test_only_certificates_of_keys_that_signed_are_renewed_in_a_hurry() -> None:
    """Of that authority alone."""
    server: Any = Keys(
        signing_key("web-1", "Retired", "web"),
        signing_key("web-2", "Verifying", "web"),
        signing_key("web-3", "Active", "web"),
        signing_key("web-4", "Published", "web"),
        signing_key("mail-1", "Active", "mail"),
    )

    rotate(asked(hurry=True), server, "web")

    hurried = [name for _, name, spec in server.changes if "renewBy" in spec]
    assert sorted(set(hurried)) == ["web-2", "web-3"]
    calm: Any = Keys(*server.lists["signingkeys"])
    rotate(asked(), calm, "web")
    assert not any("renewBy" in spec for _, _, spec in calm.changes)


@pytest.mark.parametrize("what", ["tokens", "sealing"])
def test_only_an_authority_is_rotated_in_a_hurry(what: str) -> None:
    with pytest.raises(Complaint, match="--hurry is for certificates"):
        key_steps.rotate_named(asked(what=what, hurry=True))


OWNER = {"metadata": {"name": "web"}, "spec": {"key": {"algorithm": "ECDSA-P256"}}}


def test_a_successor_is_created_with_the_algorithm_of_the_authority() -> None:
    server: Any = Keys(signing_key("web-1", "Active", "web"))
    server.objects["web"] = OWNER

    rotate(asked(), server, "web")

    method, _, body = server.changes[0]
    assert (method, body["metadata"]["name"]) == ("post", "web-2")
    assert (body["spec"]["authority"], body["spec"]["algorithm"]) == ("web", "ECDSA-P256")
    assert changed(server) == [("web-2", "Active")]


@pytest.mark.parametrize(
    ("owner", "keys", "text"),
    [
        ({"signerNames": ["a"]}, [], "its keys are files"),
        ({}, [], "the server does not create its keys"),
        (OWNER["spec"], [signing_key("web-1", "Active", "web", pkcs11={"label": "x"})], "HSM"),
    ],
)
def test_no_successor_is_created_for_a_key_from_elsewhere(
    owner: dict[str, Any], keys: list[dict[str, Any]], text: str
) -> None:
    server: Any = Keys(*keys)
    server.objects["web"] = {"metadata": {"name": "web"}, "spec": owner}

    with pytest.raises(Complaint, match=text):
        rotate(asked(), server, "web")
    assert server.changes == []


TOO_EARLY = "verifiers have it only after the publish time"


def test_a_created_successor_that_signs_later_is_no_failure(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What is left to do is printed; a hurry begins when the key signs."""
    for hurry, flags in ((False, ""), (True, " --hurry")):
        server: Any = Keys(signing_key("web-1", "Active", "web"))
        server.objects["web"] = OWNER
        server.refusals["put web-2"] = CommandRefused(422, TOO_EARLY)

        assert rotate(asked(hurry=hurry), server, "web") == 0

        printed = capsys.readouterr().err
        assert f"not yet: {TOO_EARLY}\n" in printed
        assert printed.endswith(f"next: orchid ca rotate web{flags} --wait 25h\n")
        assert changed(server) == []


@pytest.mark.parametrize(
    ("keys", "wait", "status"),
    [
        ([signing_key("web-2", "Published", "web")], 0, 422),
        ([], 0.1, 422),
        ([], 0, 403),
    ],
)
def test_any_other_refusal_of_a_rotation_is_a_failure(
    keys: list[dict[str, Any]], wait: float, status: int
) -> None:
    """Nothing was created, the time to wait is over, or the caller has no right."""
    server: Any = Keys(signing_key("web-1", "Active", "web"), *keys)
    server.objects["web"] = OWNER
    server.refusals["put web-2"] = CommandRefused(status, TOO_EARLY)

    with pytest.raises(CommandRefused, match=TOO_EARLY):
        rotate(asked(wait=wait), server, "web")


def test_a_key_of_the_hsm_that_signs_no_more_is_no_obstacle() -> None:
    server: Any = Keys(
        signing_key("web-1", "Verifying", "web", pkcs11={"label": "x"}),
        signing_key("web-2", "Active", "web"),
    )
    server.objects["web"] = OWNER

    rotate(asked(), server, "web")

    assert changed(server) == [("web-3", "Active")]


def test_a_step_is_repeated_after_a_conflict_and_after_nothing_else() -> None:
    """The controller may write the same key."""
    server: Any = Keys(signing_key("tokens-1", "Published"), conflicts=1)
    assert key_steps._step(asked(), server, "tokens-1", "Active", "signs") == 0
    assert changed(server) == [("tokens-1", "Active")]

    server.refusals["put tokens-1"] = CommandRefused(422, "rejected")
    with pytest.raises(CommandRefused, match="rejected"):
        key_steps._step(asked(), server, "tokens-1", "Retired", "is retired")


def test_a_key_that_never_signed_does_not_sign_again(monkeypatch: pytest.MonkeyPatch) -> None:
    for state, is_refused in (("Published", True), ("Verifying", False)):
        server: Any = Keys(signing_key("tokens-1", state))
        monkeypatch.setattr(key_steps, "connect", lambda chosen, found=server: found)
        if is_refused:
            with pytest.raises(Complaint, match="orchid key rotate has it sign"):
                key_steps.back(asked())
        else:
            key_steps.back(asked())
        assert changed(server) == ([] if is_refused else [("tokens-1", "Active")])


def test_a_key_is_not_retired_without_a_confirmation(monkeypatch: pytest.MonkeyPatch) -> None:
    server: Any = Keys(signing_key("tokens-1", "Verifying"))
    monkeypatch.setattr(key_steps, "connect", lambda chosen: server)

    with pytest.raises(Complaint, match="nothing was changed"):
        key_steps.retire(asked(yes=False))
    assert server.changes == []
    key_steps.retire(asked())
    assert changed(server) == [("tokens-1", "Retired")]
