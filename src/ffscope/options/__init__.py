"""Options as dataclasses: each field carries its help, range and default once, for the command line, Python and study.json."""
