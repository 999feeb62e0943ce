"""A kubeconfig that names its credentials by path, so that clients read them again.

For an account: `token` and `ca.crt`. For the host itself: `tls.crt`, `tls.key` and `ca.crt`. The
paths are relative; clients resolve them from the directory of the kubeconfig.
"""

from typing import Final

from orchid.features.hosts.agent.configuration import Kubeconfig
from orchid.features.hosts.agent.generations import OutputFile
from orchid.features.hosts.agent.held_certificate import local_renewal_time, read_held
from orchid.features.hosts.agent.outputs.content import ContentFailed, Files, Fresh, Life, Round
from orchid.features.hosts.agent.outputs.token import FILE as TOKEN
from orchid.features.hosts.agent.outputs.token import fresh_token, token_life
from orchid.kernel.credentials import keys
from orchid.kernel.outbound.api_connection import Json
from orchid.kernel.outbound.kubeconfig import ServerAccess
from orchid.kernel.wire.codec import yaml_text

FILE, CERTIFICATE, KEY, AUTHORITY = "kubeconfig", "tls.crt", "tls.key", "ca.crt"
LIFETIME: Final = 3600


class KubeconfigContent:
    """The content of an output with `kubeconfig`."""

    def __init__(self, wanted: Kubeconfig) -> None:
        self._account = wanted.account

    def life(self, files: Files) -> Life | None:
        if FILE not in files:
            return None
        if self._account:
            return token_life(files.get(TOKEN, b""), "")
        held = read_held(files.get(CERTIFICATE, b""), files.get(KEY, b""))
        return Life(held.end, local_renewal_time(held)) if held is not None else None

    def refresh(self, name: str, files: Files, current: Round) -> Fresh:
        access = current.calls.access
        outputs, credential = self._credential(files, current)
        if access.authority:
            outputs.append(OutputFile(AUTHORITY, access.authority))
        text = _document(access, self._account or current.identity.host, credential)
        outputs.append(OutputFile(FILE, text))
        life = self.life({file.name: file.data for file in outputs})
        if life is None:
            raise ContentFailed("the credential of the kubeconfig cannot be read")
        return Fresh(outputs, life)

    def _credential(self, files: Files, current: Round) -> tuple[list[OutputFile], Json]:
        if self._account:
            token = fresh_token(files.get(TOKEN, b""), current, self._account, "", LIFETIME)
            return [OutputFile(TOKEN, token, is_secret=True)], {"tokenFile": TOKEN}
        held = current.identity.held
        if held is None:
            raise ContentFailed("a kubeconfig of the host needs an identity by join.file")
        key = keys.encode_private(held.key).encode()
        return [
            OutputFile(CERTIFICATE, current.identity.certificate_pem),
            OutputFile(KEY, key, is_secret=True),
        ], {"client-certificate": CERTIFICATE, "client-key": KEY}


def _document(access: ServerAccess, user: str, credential: Json) -> bytes:
    cluster: Json = {"server": access.server}
    if access.authority:
        cluster["certificate-authority"] = AUTHORITY
    if access.server_name:
        cluster["tls-server-name"] = access.server_name
    return yaml_text.dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "server", "cluster": cluster}],
            "users": [{"name": user, "user": credential}],
            "contexts": [{"name": user, "context": {"cluster": "server", "user": user}}],
            "current-context": user,
        }
    )
