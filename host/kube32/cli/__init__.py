"""kube32-cli: pushes modules, deploys pods, saves and moves them, reads snapshots."""
