"""One module for each page: its address, its JSON for the browser, for scripts and for exports, and the type of that JSON.

Every module here has a `router`; a new module is a new page.
"""
