"""PersistentVolumeClaims on node storage: bound to the node of the first pod that uses them."""
