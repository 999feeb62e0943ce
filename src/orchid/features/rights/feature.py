"""Roles and bindings: who may do what, evaluated on each request.

Kinds      Role, ClusterRole, RoleBinding, ClusterRoleBinding, SelfSubjectRulesReview
Read first authorizers/rbac.py
"""

from orchid.features.rights.controllers import aggregate_roles
from orchid.features.rights.kinds import role, role_binding
from orchid.features.rights.roles import roles
from orchid.kernel.feature import Feature

FEATURE = Feature(
    name="rights",
    kinds=(role.declare, role_binding.declare),
    controllers=(aggregate_roles.CONTROLLER,),
    roles=roles,
    documentation="access.md",
)
