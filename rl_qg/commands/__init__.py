"""The command line: settings composed by Hydra, one function for each command."""
