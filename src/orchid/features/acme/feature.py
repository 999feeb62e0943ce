"""ACME (RFC 8555): certificates for clients such as certbot, by policy instead of challenges.

Whether an order becomes a certificate is decided as for every request, by
features/approving/controllers/approve_requests.py.

Kinds      AcmeAccount, AcmeOrder
Pages      /acme/
Uses       rights, objects, revocation, sign_in, accounts, authorities, certificates
Read first orders.py
"""

from orchid.features.acme.acme_accounts import AcmeAccounts, ExternalKeys
from orchid.features.acme.acme_orders import AcmeOrders
from orchid.features.acme.controllers import clean_orders
from orchid.features.acme.kinds import acme_account, acme_order
from orchid.features.acme.protocol import links
from orchid.features.acme.roles import roles
from orchid.features.acme.server import IDENTITY, AcmeServer
from orchid.features.acme.settings import AcmeSettings
from orchid.features.authorities.kinds.certificate_authority import CertificateAuthority
from orchid.features.revocation.revocations import Revocations
from orchid.kernel.context import Context, ServerPart
from orchid.kernel.feature import Feature


def _server(context: Context) -> AcmeServer:
    settings, feed, naming, clock = context.settings, context.feed, context.naming, context.clock
    clients, revocations = context.clients, context.port(Revocations)
    authorities = feed.of(CertificateAuthority)

    def find(name: str) -> CertificateAuthority | None:
        entry = authorities.get("", name)
        return entry.object if entry and entry.object.spec.acme is not None else None

    return AcmeServer(
        str(settings.given.of(AcmeSettings).acme_url) or settings.url,
        clients(IDENTITY.name),
        find,
        accounts=AcmeAccounts(feed, revocations, naming),
        keys=ExternalKeys(feed, revocations, naming, clock),
        orders=AcmeOrders(feed, clock),
        acting=clients.acting,
        acting_holder=clients.acting_holder,
        naming=naming,
        clock=clock,
        key_problem=revocations.key_problem,
    )


FEATURE = Feature(
    name="acme",
    kinds=(acme_account.declare, acme_order.declare),
    controllers=(clean_orders.CONTROLLER,),
    roles=roles,
    identities=(IDENTITY,),
    provides=(ServerPart(AcmeServer, _server),),
    pages=lambda context: {links.PREFIX: context.port(AcmeServer).pages},
    metrics=lambda context: context.port(AcmeServer).metrics,
    documentation="acme.md",
)
