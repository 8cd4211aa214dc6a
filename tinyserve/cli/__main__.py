"""`python -m tinyserve.cli`, for an environment whose scripts are not on the path."""

from .main import main

if __name__ == "__main__":
    main()
