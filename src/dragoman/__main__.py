"""`python -m dragoman` is `dragoman`."""

from .cli import main

main()
