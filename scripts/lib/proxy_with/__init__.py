"""The parts and helpers of scripts/proxy-with."""
