"""The Deployment controller, which owns its pods directly."""
