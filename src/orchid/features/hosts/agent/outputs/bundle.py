"""The trust anchors of a signer, as PEM and as a Java trust store, and its revocation list."""

from orchid.features.hosts.agent.configuration import Bundle
from orchid.features.hosts.agent.generations import OutputFile
from orchid.features.hosts.agent.outputs.content import ContentFailed, Files, Fresh, Life, Round
from orchid.features.hosts.agent.trust import revocation_list

PEM, STORE, REVOKED = "bundle.pem", "bundle.p12", "crl.pem"


class BundleContent:
    """The content of an output with `bundle`."""

    def __init__(self, wanted: Bundle) -> None:
        self._wanted = wanted

    def life(self, files: Files) -> Life | None:
        names = {"pem": PEM, "p12": STORE, "crl": REVOKED}
        has_all = all(files.get(names[form]) for form in self._wanted.formats)
        return Life() if has_all else None

    def refresh(self, name: str, files: Files, current: Round) -> Fresh:
        settings = self._wanted
        anchors = current.bundle(settings.signer)
        outputs = [OutputFile(PEM, anchors)]
        if "p12" in settings.formats:
            outputs.append(OutputFile(STORE, self._store(anchors, files)))
        if "crl" in settings.formats:
            present = files.get(REVOKED, b"")
            listed = revocation_list(current.calls, settings.authority, present)
            if not listed:
                raise ContentFailed(f"the authority {settings.authority} has no revocation list")
            outputs.append(OutputFile(REVOKED, listed))
        return Fresh(outputs, Life())

    def _store(self, anchors: bytes, files: Files) -> bytes:
        """The trust store; encoding is random, so the present one stays while the anchors do."""
        if files.get(PEM) == anchors and files.get(STORE):
            return files[STORE]
        from orchid.kernel.credentials.x509.trust.java_store import java_store  # noqa: PLC0415 -- rarely used

        return java_store(anchors, self._wanted.password.encode())
