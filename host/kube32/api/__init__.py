"""The API server: requests in, answers out, over the store. Only its adapter knows a socket."""
