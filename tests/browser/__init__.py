"""The explorer's pages in a real browser; a package, since two of its files are called as their neighbours are."""
