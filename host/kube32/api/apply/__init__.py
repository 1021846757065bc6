"""Server-side apply and managed fields, as Kubernetes has them (structured-merge-diff): who set which field."""
