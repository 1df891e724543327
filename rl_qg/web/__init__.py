"""What the servers share."""
