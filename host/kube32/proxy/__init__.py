"""A node's listeners: NodePorts and the Ingress, in front of pods on any node; a pure API client."""
