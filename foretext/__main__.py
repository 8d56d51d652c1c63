"""`python -m foretext`: the command line if the `foretext` command is not on the path."""

from foretext.cli.app import main

if __name__ == "__main__":
    main()
