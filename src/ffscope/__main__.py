"""`python -m ffscope`."""

from ffscope.cli import main

main()
