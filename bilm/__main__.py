"""`python -m bilm`, which is the same as the command `bilm`."""

from bilm.commands.main import run

if __name__ == "__main__":
    run()
