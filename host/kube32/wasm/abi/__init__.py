"""The host functions of the pod ABI. Pointers are checked before anything else; errors are the contract's."""

from kube32.wasm.abi.state import CallState, Interrupted
from kube32.wasm.abi.table import callback, host_functions

__all__ = ["CallState", "Interrupted", "callback", "host_functions"]
