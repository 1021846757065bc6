"""Power cuts at and inside every flash operation of random workloads."""
