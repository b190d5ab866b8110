"""`python -m streamgda`: the command line, where the script is not on the path."""

from streamgda.cli import main

if __name__ == "__main__":
    main()
