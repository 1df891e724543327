"""`accelerate launch rl_qg/score.py key=value …` is `rl-qg score key=value …` in several processes."""

from rl_qg.commands.cli import main

if __name__ == "__main__":
    main(["score"])
