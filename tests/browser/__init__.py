"""The explorer's pages in a real browser; a package, since two of its files share a name with files one folder up."""
