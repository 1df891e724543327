"""What every command rests on: errors, processes, files that survive a kill, checkpoints, run folders."""
