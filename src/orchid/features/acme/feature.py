"""ACME (RFC 8555): certificates for clients such as certbot, by policy instead of challenges.

Kinds      AcmeAccount, AcmeOrder
Pages      /acme/
Uses       rights, objects, revocation, sign_in, accounts, authorities, certificates
Read first orders.py
"""

from orchid.features.acme import door
from orchid.features.acme.controllers import clean_orders
from orchid.features.acme.kinds import acme_account, acme_order
from orchid.features.acme.roles import roles
from orchid.kernel.feature import Feature

FEATURE = Feature(
    name="acme",
    kinds=(acme_account.declare, acme_order.declare),
    controllers=(clean_orders.CONTROLLER,),
    identities=(door.IDENTITY,),
    roles=roles,
    documentation="acme.md",
)
