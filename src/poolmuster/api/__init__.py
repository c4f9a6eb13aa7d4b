"""The HTTP interface of ``poolmuster serve``. Readers see the list only; writers go through the registrar."""
