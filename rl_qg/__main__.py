"""`accelerate launch -m rl_qg COMMAND key=value …` is `rl-qg COMMAND key=value …` in several processes."""

from rl_qg.commands.cli import main

if __name__ == "__main__":
    main()
