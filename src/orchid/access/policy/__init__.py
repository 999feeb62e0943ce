"""RBAC rules as data: the roles of a new server, their reconciliation, and their coverage."""
