"""`accelerate launch rl_qg/generate.py key=value …` is `rl-qg generate key=value …` in several processes."""

from rl_qg.commands.cli import main

if __name__ == "__main__":
    main(["generate"])
