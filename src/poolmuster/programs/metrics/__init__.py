"""Prometheus collectors of the programs, one file for each part."""
