"""What a run or a study did, as pages, cards and plots."""
