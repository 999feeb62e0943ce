"""Default roles that belong to no feature, and those for Roles and reviews of access."""

from typing import Final

from orchid.kernel.wire.default_roles import ADMIN, DELEGATOR, EVERYBODY, DefaultRole, urls
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.policy_rules import CORE, FULL_AUTHORITY, READ, WRITE, rule
from orchid.kernel.wire.user import AUTHENTICATED, MASTERS

HEALTH_URLS: Final = ("/healthz", "/livez", "/readyz")
VERSION_URLS: Final = ("/version", "/version/")
DISCOVERY_URLS: Final = ("/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*")
MONITORING_URLS: Final = (
    "/flagz",
    *HEALTH_URLS,
    *(f"{url}/*" for url in HEALTH_URLS),
    "/metrics",
    "/metrics/slis",
    "/statusz",
)


def roles(naming: Naming) -> tuple[DefaultRole, ...]:
    return (
        DefaultRole("cluster-admin", FULL_AUTHORITY, groups=(MASTERS,)),
        DefaultRole(
            "system:discovery",
            (urls(*DISCOVERY_URLS, *HEALTH_URLS, *VERSION_URLS),),
            groups=(AUTHENTICATED,),
        ),
        DefaultRole(
            "system:public-info-viewer", (urls(*HEALTH_URLS, *VERSION_URLS),), groups=EVERYBODY
        ),
        DefaultRole(
            "system:monitoring",
            (urls(*MONITORING_URLS), rule(("get",), CORE, ("nodes/metrics",))),
            groups=("system:monitoring",),
        ),
        *_of_reviews(naming),
        DefaultRole(
            ADMIN,
            (
                rule(("create",), naming.authorization, ("localsubjectaccessreviews",)),
                rule((*READ, *WRITE), naming.rbac, ("rolebindings", "roles")),
            ),
        ),
    )


def _of_reviews(naming: Naming) -> tuple[DefaultRole, ...]:
    own = ("selfsubjectaccessreviews", "selfsubjectrulesreviews")
    return (
        DefaultRole(
            "system:basic-user",
            (
                rule(("create",), naming.authorization, own),
                rule(("create",), naming.authentication, ("selfsubjectreviews",)),
            ),
            groups=(AUTHENTICATED,),
        ),
        # For other servers that delegate authentication and authorization to this one.
        DefaultRole(
            DELEGATOR, (rule(("create",), naming.authorization, ("subjectaccessreviews",)),)
        ),
    )
