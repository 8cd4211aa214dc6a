"""Measures through the public doors: protocol, machine, latency, roofline, peers, records."""
