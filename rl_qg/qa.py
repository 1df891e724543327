"""`accelerate launch rl_qg/qa.py key=value …` is `rl-qg qa key=value …` in several processes."""

from rl_qg.commands.cli import main

if __name__ == "__main__":
    main(["qa"])
