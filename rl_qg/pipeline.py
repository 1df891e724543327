"""`accelerate launch rl_qg/pipeline.py key=value …` is `rl-qg pipeline key=value …` in several processes."""

from rl_qg.commands.cli import main

if __name__ == "__main__":
    main(["pipeline"])
