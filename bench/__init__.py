"""Speeds of the service beside etcd's, in one run, on the same cores: ``make bench``."""
