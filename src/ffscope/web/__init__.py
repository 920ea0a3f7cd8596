"""The explorer: a study in the browser. A page is a module of `pages` and a script of `static`.

For an export all scripts are put one behind another, since browsers load no modules from the disk: names at the top of a script are
its own alone, and imports are of the plain form.
"""
