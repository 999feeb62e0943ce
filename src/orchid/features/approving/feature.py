"""Approval policies decide about certificate requests; people decide about the rest.

Kinds      ApprovalPolicy, ApprovalReview
Uses       rights, revocation, approval, accounts, authorities, certificates, acme, hosts
Read first controllers/approve_requests.py
"""

from orchid.features.approving import parts
from orchid.features.approving.controllers import approve_requests, keep_approvals
from orchid.features.approving.kinds import approval_policy
from orchid.features.approving.roles import roles
from orchid.kernel.feature import Feature

FEATURE = Feature(
    name="approving",
    kinds=(approval_policy.declare,),
    controllers=(approve_requests.CONTROLLER, keep_approvals.CONTROLLER),
    roles=roles,
    served_kinds=parts.served_kinds,
    provides=parts.PARTS,
    policies=parts.policies,
    documentation="policies.md",
)
