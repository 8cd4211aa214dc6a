"""Requests in, tokens out, one step at a time."""
