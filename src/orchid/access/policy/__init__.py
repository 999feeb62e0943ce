"""RBAC rules as data: the roles of a new server, their reconciliation, and what rules cover."""
