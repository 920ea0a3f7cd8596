"""The explorer: a study in the browser. A page is a module of `pages` and a script of `static`.

An export concatenates all scripts into one, since browsers load no modules from disk. So no two scripts declare the same top-level
name, and imports have the form `import { a, b } from "./file.js";`.
"""
