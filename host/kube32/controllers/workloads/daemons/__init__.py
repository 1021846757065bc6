"""The DaemonSet controller."""
