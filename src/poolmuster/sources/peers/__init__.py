"""The memory store of several instances: each takes registrations, all list all of them."""
