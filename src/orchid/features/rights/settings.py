"""Settings of the authorizers."""

from typing import Annotated, ClassVar

from orchid.kernel.settings.errors import BadSettings
from orchid.kernel.settings.given import Given, Help, Many
from orchid.kernel.settings.section import Section
from orchid.kernel.settings.values import Duration

AUTHORIZERS = ("Node", "RBAC", "Webhook")


class RightsSettings(Section, frozen=True):
    after: ClassVar = "api-audiences"

    authorization_mode: Annotated[
        Many, Help(description="Authorizers in order: Node, RBAC, Webhook.")
    ] = ("Node", "RBAC")
    authorization_config: Annotated[
        str, Help(description="AuthorizationConfiguration file, instead of the other settings.")
    ] = ""
    authorization_webhook_config_file: Annotated[
        str, Help(description="kubeconfig of a webhook that authorizes; reloaded when changed.")
    ] = ""
    authorization_webhook_version: Annotated[
        str, Help(description="SubjectAccessReview version of its requests: v1 or v1beta1.")
    ] = "v1"
    authorization_webhook_cache_authorized_ttl: Annotated[
        Duration, Help(description="How long allowed decisions are cached.")
    ] = Duration("5m")
    authorization_webhook_cache_unauthorized_ttl: Annotated[
        Duration, Help(description="How long other decisions are cached.")
    ] = Duration("30s")

    def refuse_contradictions(self, _: Given) -> None:
        if unknown := [mode for mode in self.authorization_mode if mode not in AUTHORIZERS]:
            authorizers = ", ".join(AUTHORIZERS)
            raise BadSettings(f"--authorization-mode: {unknown[0]!r} is none of {authorizers}")
        if not self.authorization_mode:
            raise BadSettings("--authorization-mode: at least one authorizer is needed")
