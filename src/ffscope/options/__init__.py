"""Options as dataclasses. The command line, the Python API and study.json all read each field's help, range and default here."""
