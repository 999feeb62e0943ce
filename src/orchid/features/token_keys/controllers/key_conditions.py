"""The conditions of a SigningKey: whether it is Ready, and which steps are possible.

`key_conditions` asks the server for each possible step, by a dry run (`set_state`): what a step
needs is decided in one place, features/token_keys/policies/steps.py.
"""

from typing import Final

from orchid.features.token_keys.kinds.signing_key import (
    ACTIVATABLE,
    ACTIVE,
    PUBLIC_ONLY,
    PUBLIC_ONLY_TEXT,
    PUBLISHED,
    RETIRABLE,
    RETIRED,
    VERIFYING,
    SigningKey,
)
from orchid.kernel.client.client import Client
from orchid.kernel.wire.conditions import FALSE, READY, TRUE, Condition
from orchid.kernel.wire.errors import ApiError, Invalid
from orchid.kernel.wire.struct import replace

KEY_LOST: Final = "KeyLost"


async def key_conditions(
    client: Client, key: SigningKey, *, is_signer: bool, is_lost: bool
) -> list[Condition]:
    """All conditions; `is_lost`: the Secret with the private key is gone."""
    conditions = [_ready(key, is_signer=is_signer, is_lost=is_lost)]
    for type_, state, starts in (
        (ACTIVATABLE, ACTIVE, (PUBLISHED, VERIFYING)),
        (RETIRABLE, RETIRED, (VERIFYING,)),
    ):
        if key.state in starts and (key.signs or state != ACTIVE):
            conditions.append(await _possible(client, key, type_, state))
        else:
            text = f"A key in state {key.state} does not become {state}."
            conditions.append(Condition(type=type_, status=FALSE, reason=key.state, message=text))
    return conditions


async def _possible(client: Client, key: SigningKey, type_: str, state: str) -> Condition:
    try:
        await set_state(client, key, state, dry_run=True)
    except Invalid as refusal:
        text = reasons(refusal)
        return Condition(type=type_, status=FALSE, reason="NotYet", message=text)
    text = f"The key may become {state}."
    return Condition(type=type_, status=TRUE, reason="ConditionsHold", message=text)


def _ready(key: SigningKey, *, is_signer: bool, is_lost: bool) -> Condition:
    if key.state in (PUBLISHED, ACTIVE) and is_lost:
        text = "The Secret with the private key is gone, or has another key; restore it, or "
        text += "let the successor sign."
        return Condition(type=READY, status=FALSE, reason=KEY_LOST, message=text)
    if key.state == RETIRED:
        return Condition(type=READY, status=FALSE, reason=RETIRED, message="It is Retired.")
    if key.status.request and not key.status.certificate:
        text = "Its request waits for a signature elsewhere; the chain goes into spec.chain."
        return Condition(type=READY, status=FALSE, reason="ChainMissing", message=text)
    if key.is_public_only:
        text = PUBLIC_ONLY_TEXT + key.name
        return Condition(type=READY, status=TRUE, reason=PUBLIC_ONLY, message=text)
    text = f"{'Signs and verifies' if is_signer else 'Verifies'} {key.purpose.signs}."
    reason = "Signs" if is_signer else "Verifies"
    return Condition(type=READY, status=TRUE, reason=reason, message=text)


async def set_state(client: Client, key: SigningKey, state: str, *, dry_run: bool = False) -> None:
    """Have the server change the state of a key, if that is possible now."""
    new = replace(key, spec=replace(key.spec, state=state))
    await client.update(new, dry_run=dry_run)


def reasons(refusal: ApiError) -> str:
    """The reasons in the rejection of a step, without the name of the object and the field."""
    causes = refusal.details.causes if refusal.details else ()
    texts = [one.message.removeprefix("Forbidden: ") for one in causes]
    return "; ".join(texts) or refusal.message
