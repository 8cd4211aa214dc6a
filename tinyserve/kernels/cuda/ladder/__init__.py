"""The ladder of first kernels: each rung computes what the one before it computed, and moves less or waits less for it."""
