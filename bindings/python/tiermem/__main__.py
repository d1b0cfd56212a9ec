"""`tiermem` and `python -m tiermem`: the program in the wheel."""

import os
import sys


def program_path():
    """Return the path of the program: beside this package, or what PATH finds."""
    here = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "tiermem")
    if os.access(here, os.X_OK):
        return here
    import shutil

    # The entry point of this package has the same name, and would start itself again.
    own = os.path.realpath(sys.argv[0]) if sys.argv and sys.argv[0] else ""
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        found = shutil.which("tiermem", path=folder)
        if found and os.path.realpath(found) != own and not _is_script(found):
            return found
    raise FileNotFoundError(
        f"tiermem: the program is not in this package ({here}) and not in PATH; install the wheel, or "
        "build the project and put its program in PATH"
    )


def _is_script(path):
    with open(path, "rb") as file:
        return file.read(2) == b"#!"


def main():
    """Replace this process by the program, with the same arguments."""
    if sys.argv[1:2] == ["demo"]:
        from . import demo

        sys.exit(demo.main(sys.argv[2:]))
    try:
        program = program_path()
    except FileNotFoundError as error:
        sys.exit(str(error))
    os.execv(program, ["tiermem", *sys.argv[1:]])


if __name__ == "__main__":
    main()
