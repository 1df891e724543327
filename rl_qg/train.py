"""`accelerate launch rl_qg/train.py key=value …` is `rl-qg train key=value …` in several processes."""

from rl_qg.commands.cli import main

if __name__ == "__main__":
    main(["train"])
