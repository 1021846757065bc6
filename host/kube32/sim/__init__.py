"""kube32-sim: a control plane with a node, or a worker, in one process."""
