"""The documents of operations: what is sent to create an object of each kind."""

import base64
from collections.abc import Callable, Mapping
from typing import Any

from tests.adversary.acme import ACCOUNT_NAME, ACCOUNT_UID, KEY_TYPE
from tests.adversary.kinds import KINDS
from tests.adversary.operations import Operation
from tests.adversary.pool import Pool, certificates_in
from tests.adversary.rights import TEAM

AUTHORITY_USAGES = ("client auth", "server auth", "digital signature")


class Bodies:
    """Documents by kind; `find` reads what exists."""

    def __init__(self, pool: Pool, find: Callable[..., dict[str, Any] | None]) -> None:
        self._pool, self._find = pool, find

    def of(self, operation: Operation, name: str) -> dict[str, Any]:
        kind = KINDS[operation.kind]
        made = getattr(self, f"_{operation.kind}", self._plain)(operation.options)
        meta = {"name": name, **made.pop("metadata", {})}
        return {**kind.described, "metadata": meta, **made}

    def _plain(self, options: Mapping[str, Any]) -> dict[str, Any]:
        return dict(options)

    def _certificateauthorities(self, options: Mapping[str, Any]) -> dict[str, Any]:
        spec: dict[str, Any] = {"signerName": options["signer"]}
        spec["issues"] = {"usages": AUTHORITY_USAGES, "names": ["dns", "uri"]}
        if "secret" in options:
            namespace, name = options["secret"]
            spec["secretRef"] = {"namespace": namespace, "name": name}
        else:
            spec["key"] = {"algorithm": options.get("algorithm", "ECDSA-P256")}
            spec["subject"] = {"commonName": f"CA of {options['signer']}"}
        if options.get("parent") == "external":
            spec["parent"] = {"external": True}
        elif options.get("parent"):
            spec["parent"] = {"authority": options["parent"]}
        if options.get("acme"):
            spec["acme"] = {}
        return {"spec": spec}

    def _signingkeys(self, options: Mapping[str, Any]) -> dict[str, Any]:
        spec: dict[str, Any] = {"authority": options["authority"]} if options["authority"] else {}
        if "secret" in options:
            namespace, name = options["secret"]
            spec["secretRef"] = {"namespace": namespace, "name": name}
        elif "public" in options:
            spec["publicKey"] = self._pool.pair(options["public"]).public_pem
        else:
            spec["algorithm"] = options["algorithm"]
        return {"spec": spec}

    def _secrets(self, options: Mapping[str, Any]) -> dict[str, Any]:
        if "account" in options:
            return self._external_key(options)
        return {"type": options.get("type", "Opaque"), "data": self.secret_data(options)}

    def _external_key(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """A shared secret, by which ACME clients act as a service account."""
        account = self._find("serviceaccounts", options["account"], TEAM) or {"metadata": {}}
        named = {
            ACCOUNT_NAME: options["account"],
            ACCOUNT_UID: account["metadata"].get("uid", ""),
        }
        data = {"key": self._pool.secret(options["account"]), "expiration": b"2100-01-01T00:00:00Z"}
        encoded = {name: base64.b64encode(value).decode() for name, value in data.items()}
        return {"type": KEY_TYPE, "metadata": {"annotations": named}, "data": encoded}

    def secret_data(self, options: Mapping[str, Any]) -> dict[str, str]:
        """A pair of the pool; `like`: with the name and key identifier of an authority."""
        pair = self._pool.pair(options["pair"])
        chain = pair.root
        like = self._find("certificateauthorities", options.get("like", ""))
        shown = certificates_in((like or {}).get("status", {}).get("certificate", ""))
        if shown:
            chain = pair.like(shown[0])
        data = {"tls.crt": chain, "tls.key": pair.key_pem}
        return {name: base64.b64encode(text.encode()).decode() for name, text in data.items()}

    def _certificatesigningrequests(self, options: Mapping[str, Any]) -> dict[str, Any]:
        pair = self._pool.pair(options["pair"])
        request = pair.request(options["subject"], options["names"])
        spec = {
            "signerName": options["signer"],
            "request": base64.b64encode(request.encode()).decode(),
            "usages": options["usages"],
        }
        if "seconds" in options:
            spec["expirationSeconds"] = options["seconds"]
        return {"spec": spec}

    def _approvalpolicies(self, options: Mapping[str, Any]) -> dict[str, Any]:
        allows = {
            "usages": [*AUTHORITY_USAGES, "key encipherment"],
            "keys": ["*"],
            "maxDuration": "9000h",
            **options["allows"],
        }
        return {"spec": {"signerNames": options["signers"], "allows": allows}}

    def _publishedbundles(self, options: Mapping[str, Any]) -> dict[str, Any]:
        return {"spec": {"sources": [{"signerName": options["signer"]}], "refreshHint": "1m"}}

    def _clustertrustbundles(self, options: Mapping[str, Any]) -> dict[str, Any]:
        root = self._pool.pair(options["pair"]).root
        return {"spec": {"signerName": options["signer"], "trustBundle": root}}

    def _credentialrevocations(self, options: Mapping[str, Any]) -> dict[str, Any]:
        return {"spec": {**options["target"], "reason": options.get("reason", "keyCompromise")}}
