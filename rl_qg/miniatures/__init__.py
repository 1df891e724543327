"""Small models pretrained on the text at hand, so that every command runs without a hub."""
