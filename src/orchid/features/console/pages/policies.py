"""Approval policies: each in sentences and as YAML, and a box to try one."""

import asyncio
import base64
from collections.abc import Mapping
from typing import Any, Final

import yaml

from orchid.features.console.api import Json
from orchid.features.console.page import ConsolePage, Retry, Shown, Visit
from orchid.features.console.pages import shared
from orchid.kernel.wire.codec import yaml_text

LARGEST_POLICY: Final = 64 * 1024
OUTCOMES: Final = {"": "leaves them to a person", "Deny": "denies them"}


async def read_list(visit: Visit) -> Mapping[str, Any]:
    return await shared.gather(visit, found=_listed(visit))


async def _listed(visit: Visit) -> list[Json]:
    target = await visit.api.identity("approvalpolicies")
    found, _ = await shared.everything(visit.api, target)
    return [_row(one) for one in found]


def _row(policy: Json) -> Json:
    spec = policy.get("spec") or {}
    ready = shared.condition(policy, "Ready")
    return {
        "name": shared.name_of(policy),
        "signers": list(spec.get("signerNames") or ()),
        "otherwise": str(spec.get("otherwise") or ""),
        "ready": not ready or ready.get("status") == "True",
        "reason": ready.get("message") or "",
    }


async def read_one(visit: Visit) -> Mapping[str, Any]:
    name = visit.names["name"]
    policy = await visit.api.get(await visit.api.identity("approvalpolicies", name))
    spec = policy.get("spec") or {}
    return {
        "name": name,
        "row": _row(policy),
        "sentences": sentences_of(spec),
        "rules": list(spec.get("rules") or ()),
        "yaml": _yaml(spec),
        "tried": None,
    }


def _yaml(spec: Json) -> str:
    return str(yaml.safe_dump(spec, sort_keys=False))


def sentences_of(spec: Json) -> list[str]:
    """What a policy selects and allows."""
    signers = ", ".join(map(str, spec.get("signerNames") or ())) or "no signer"
    sentences = [f"It is for requests to {signers}."]
    requesters = spec.get("requesters") or {}
    for word, values in sorted(requesters.items()):
        shown = ", ".join(map(str, values)) if isinstance(values, list) else str(values)
        sentences.append(f"The requester must match {word}: {shown}.")
    for field, values in sorted((spec.get("allows") or {}).items()):
        shown = ", ".join(map(str, values)) if isinstance(values, list) else str(values)
        sentences.append(f"It allows {field}: {shown}.")
    otherwise = OUTCOMES.get(str(spec.get("otherwise") or ""), str(spec.get("otherwise") or ""))
    sentences.append(f"Requests that it selects and does not allow: it {otherwise}.")
    return sentences


async def attempt(visit: Visit) -> Shown | Retry:
    """Evaluate an edited copy of the policy; nothing is stored."""
    form = visit.form
    text = form.get("policy", "")
    if len(text) > LARGEST_POLICY:
        return Retry("The policy is too long.", 400)
    try:
        # With limits: aliases of a few lines can expand to billions of values.
        policy, _ = await asyncio.to_thread(yaml_text.load, text.encode())
    except yaml_text.YamlError as problem:
        return Retry(f"The policy cannot be read. {problem}", 400)
    if not isinstance(policy, dict):
        return Retry("The policy is not a YAML object.", 400)
    spec: Json = {"policy": policy.get("spec", policy)}
    if name := form.get("request", "").strip():
        spec["requestName"] = name
    elif pem := form.get("pem", "").strip():
        spec["request"] = base64.b64encode(pem.encode()).decode()
        spec["signerName"] = form.get("signer", "").strip()
        spec["usages"] = [
            part.strip() for part in form.get("usages", "").split(",") if part.strip()
        ]
    else:
        return Retry("Name a stored request, or paste one in PEM.", 400)
    if user := form.get("user", "").strip():
        groups = [part.strip() for part in form.get("groups", "").split(",") if part.strip()]
        spec["user"] = {"username": user, "groups": groups}
    target = await visit.api.identity("approvalreviews")
    answer = (await visit.api.post(target, {"spec": spec})).get("status") or {}
    return Shown({"tried": answer, "yaml": text})


PAGES = (
    ConsolePage("/policies", "policies.html", read_list, section="policies"),
    ConsolePage("/policies/{name}", "policy.html", read_one, section="policies", act=attempt),
)
