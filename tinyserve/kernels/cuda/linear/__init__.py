"""Matrix products with quantized weights: `matvec.py` for decode, `matmul.py` (tensor cores) for batches, over one packed layout."""
