"""Small models pretrained on the training passages, so that every command runs without a hub."""
