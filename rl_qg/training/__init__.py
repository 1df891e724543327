"""Training generators by cross-entropy and by reward: our trainer, and TRL's for causal models."""
