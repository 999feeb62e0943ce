"""Roles and bindings: who may do what, evaluated on each request.

Kinds      Role, ClusterRole, RoleBinding, ClusterRoleBinding, SelfSubjectRulesReview
Read first authorizers/rbac.py
"""

from orchid.features.rights import parts
from orchid.features.rights.controllers import aggregate_roles
from orchid.features.rights.kinds import role, role_binding
from orchid.features.rights.roles import roles
from orchid.kernel.feature import Feature

FEATURE = Feature(
    name="rights",
    kinds=(role.declare, role_binding.declare),
    controllers=(aggregate_roles.CONTROLLER,),
    roles=roles,
    permission_kinds=(
        role.Role,
        role.ClusterRole,
        role_binding.RoleBinding,
        role_binding.ClusterRoleBinding,
    ),
    provides=parts.PARTS,
    authorizers=parts.authorizers,
    policies=parts.policies,
    served_kinds=parts.served_kinds,
    metrics=parts.metrics,
    prepare=parts.prepare,
    background=parts.background,
    documentation="access.md",
)
