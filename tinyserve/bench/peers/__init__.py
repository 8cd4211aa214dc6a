"""Other engines on the same machine, weights and threads: each in its own environment, measured side by side."""
