"""One module per page: its routes, its JSON (for the browser, scripts and exports) and the type of that JSON.

Every module here defines a `router`; adding a module adds a page.
"""
