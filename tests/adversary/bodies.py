"""The documents of operations: what is sent to create an object of each kind."""

import base64
from collections.abc import Callable, Mapping
from typing import Any

from tests.adversary.kinds import KINDS
from tests.adversary.operations import Operation
from tests.adversary.pool import Pool, certificates_in

AUTHORITY_USAGES = ("client auth", "server auth", "digital signature")


class Bodies:
    """Documents by kind; `find` reads what exists."""

    def __init__(self, pool: Pool, find: Callable[..., dict[str, Any] | None]) -> None:
        self._pool, self._find = pool, find

    def of(self, operation: Operation, name: str) -> dict[str, Any]:
        kind = KINDS[operation.kind]
        made = getattr(self, f"_{operation.kind}", self._plain)(operation.options)
        version = f"{kind.group}/{kind.version}" if kind.group else kind.version
        meta = {"name": name}
        return {"apiVersion": version, "kind": kind.kind, "metadata": meta, **made}

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
        return {"type": options.get("type", "Opaque"), "data": self.secret_data(options)}

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
