"""From a checkpoint to logits: configuration, weights, and one decoder for every supported layout."""
