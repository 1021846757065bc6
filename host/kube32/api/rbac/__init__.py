"""Roles and bindings: who may do what, as Kubernetes' RBAC objects and the contract's built-in roles say."""
