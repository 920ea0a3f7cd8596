"""One module for each question that is asked of a model. It ends in `STAGE = Stage(...)`: all that the rest of ffscope knows of it.

A row imports neither torch nor duckdb: what runs a stage, draws its figures or fills its panels is named as "module:name" and
imported when it is needed. A new module here, or an entry point of the group `ffscope.stages` elsewhere, is a new stage.
"""
