"""Adapters of trained metrics, whose packages or checkpoints the user installs: BLEURT, COMET, RQUGE, CTC."""
