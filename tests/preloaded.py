"""Imported last by the process that tests fork others from: what every command does first is done there once."""

import gc

from rl_qg.commands.compose import compose

for arguments in ([], ["preset=smoke"]):  # the most frequent ones
    compose("train", arguments)  # Hydra is imported, and its parser and the schema of all settings are made
gc.freeze()  # forked processes need not look through what was made here
