"""Operations on authorities, their keys, Secrets and bundles."""

import re
from typing import Any

from tests.adversary.drawing.base import PROPAGATION, Drawing
from tests.adversary.kinds import HOME
from tests.adversary.operations import Operation
from tests.adversary.rights import SIGNERS, TEAM

SECRETS = ("ca-1", "ca-2")
STATES = ("Active", "Verifying", "Retired")


class Authorities(Drawing):
    """Authorities with keys of the server, of Secrets, and under parents."""

    def _create_authority(self) -> Operation | None:
        kind, name = "certificateauthorities", self._authority
        if self._live.named(kind, name) and self._chance.random() < 0.9:
            return None
        options: dict[str, Any] = {"signer": self._chance.choice(SIGNERS)}
        draw = self._chance.random()
        if draw < 0.3:
            options["secret"] = [TEAM, self._chance.choice(SECRETS)]
        elif draw < 0.45:
            options["algorithm"] = "RSA-4096"  # takes seconds, in which others act
        if "secret" in options and not self._live.named("secrets", options["secret"][1], TEAM):
            return self._create_secret()
        others = [other for other in self._named(kind) if other not in (name, "cluster")]
        if self._chance.random() < 0.7:
            options["acme"] = True
        if "secret" not in options and self._chance.random() < 0.35:
            options["parent"] = self._chance.choice([*others, "external"])
        actor = self._actor("create", kind, signer=options["signer"], verbs=("sign", "attest"))
        waits = options.get("algorithm") != "RSA-4096" and self._chance.random() < 0.8
        return self._operation(actor, "create", kind, name, waits=waits, **options)

    def _delete_authority(self) -> Operation | None:
        kind, name = "certificateauthorities", self._authority
        if not self._live.named(kind, name):
            return None
        actor = self._actor("delete", kind, name)
        propagation = self._chance.choice(PROPAGATION)
        return self._operation(actor, "delete", kind, name, propagation=propagation)

    def _create_key(self) -> Operation | None:
        authority = "" if self._chance.random() < 0.15 else self._authority
        names = self._named("signingkeys")
        prefix = authority or "tokens"
        numbers = [int(one[1]) for name in names if (one := re.fullmatch(rf"{prefix}-(\d+)", name))]
        name = f"{prefix}-{max(numbers, default=0) + 1}"
        options: dict[str, Any] = {"authority": authority}
        if self._chance.random() < 0.5:
            options["algorithm"] = "ECDSA-P256" if authority else "ES256"
            actor = self._actor("create", "signingkeys")
        else:
            options["secret"] = [TEAM, self._chance.choice(SECRETS)]
            actor = self._actor("create", "signingkeys", name, also=("import",))
        return self._operation(actor, "create", "signingkeys", name, **options)

    def _step(self) -> Operation | None:
        key = self._key()
        if key is None:
            return None
        name, state = key["metadata"]["name"], self._chance.choice(STATES)
        verb = {"Active": ("activate",), "Retired": ("retire",)}.get(state, ())
        actor = self._actor("patch", "signingkeys", name, also=verb)
        return self._operation(actor, "step", "signingkeys", name, state=state)

    def _delete_key(self) -> Operation | None:
        key = self._key()
        if key is None:
            return None
        name = key["metadata"]["name"]
        actor = self._actor("delete", "signingkeys", name)
        propagation = self._chance.choice(PROPAGATION)
        return self._operation(actor, "delete", "signingkeys", name, propagation=propagation)

    def _write_status(self) -> Operation | None:
        kind, name = "certificateauthorities", self._authority
        keys = [key["metadata"]["name"] for key in self._live.of("signingkeys")]
        if self._chance.random() < 0.7 and keys:
            kind, name = "signingkeys", self._chance.choice(keys)
        actor = self._actor("patch", f"{kind}/status", name)
        form = self._chance.choice(("other key", "same key"))
        return self._operation(actor, "status", kind, name, pair=self._label("root"), form=form)

    def _install_chain(self) -> Operation | None:
        keys = [
            key["metadata"]["name"]
            for key in self._live.of("signingkeys")
            if key.get("status", {}).get("request")
        ]
        if not keys:
            return None
        name = self._chance.choice(keys)
        actor = self._actor("patch", "signingkeys", name, also=("activate",))
        return self._operation(actor, "chain", "signingkeys", name, pair=self._label("root"))

    def _create_secret(self) -> Operation | None:
        namespace, name = TEAM, self._chance.choice(SECRETS)
        if self._chance.random() < 0.4:
            namespace, name = HOME, f"@secret-of-authority:{self._authority}"
        elif self._live.named("secrets", name, namespace):
            return None
        actor = self._actor("create", "secrets", "", namespace)
        options = {"pair": self._label("root"), "namespace": namespace}
        return self._operation(actor, "create", "secrets", name, **options)

    def _replace_secret(self) -> Operation | None:
        namespace, name = TEAM, self._chance.choice(SECRETS)
        keys = [key["metadata"]["name"] for key in self._keys()]
        draw = self._chance.random()
        if draw < 0.4:
            namespace, name = HOME, f"@secret-of-authority:{self._authority}"
        elif draw < 0.7 and keys:
            namespace, name = HOME, f"@secret-of-key:{self._chance.choice(keys)}"
        actor = self._actor("patch", "secrets", "", namespace)
        options = {"pair": self._label("root"), "like": self._authority, "namespace": namespace}
        return self._operation(actor, "replace", "secrets", name, **options)

    def _bundle(self) -> Operation | None:
        kind, name = "publishedbundles", self._authority
        if self._live.named(kind, name):
            return self._operation(self._actor("delete", kind, name), "delete", kind, name)
        signer = self._chance.choice(SIGNERS)
        return self._operation(self._actor("create", kind), "create", kind, name, signer=signer)
