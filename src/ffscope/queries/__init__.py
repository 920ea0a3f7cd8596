"""Every SQL statement of the project: queries of a study's tables, and of the databases in its folder. No torch.

A query takes the folder of a study, the study, or its tables if they are already open.
"""
