"""Where keys and values live: the only room that knows what a block is."""
