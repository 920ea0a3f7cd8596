"""The server's addresses: each parses what is asked, asks the library, and answers."""
