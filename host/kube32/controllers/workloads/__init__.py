"""Controllers that own pods: Deployments (directly, without ReplicaSets), DaemonSets and Jobs."""
