"""`python -m kdbirl` is the command `kdbirl`."""

from kdbirl.cli import main

main()
