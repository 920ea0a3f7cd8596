"""One module per stage. It ends in `STAGE = Stage(...)`, which declares everything the rest of ffscope needs to know about it.

A declaration imports neither torch nor duckdb: the functions that run a stage, draw its figures or fill its panels are named as
"module:name" and imported when needed. A new module here, or an entry point in the group `ffscope.stages`, adds a stage.
"""
