"""Use cases: take a registration, project the store onto the list, wake the watchers, supervise the tasks.

Data flows one way: request, registrar, store, projection, list and history, watchers. Nothing but the projection
touches the list, and readers never see anything but the list.
"""
