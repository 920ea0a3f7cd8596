"""Every SQL statement of the project: what is asked of a study's files, and of the databases beside them. No torch.

A question takes a study's folder, the study, or its tables where they are open already.
"""
