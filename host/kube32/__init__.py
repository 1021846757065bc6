"""Kube32: a small Kubernetes-compatible cluster whose WebAssembly pods move with their state."""

__version__ = "0.1.0"
