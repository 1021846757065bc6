"""Upgraded connections: pods/portforward, and the refusals of exec and attach in the client's own protocol."""
