"""What scripts/proxy-with is made of."""
