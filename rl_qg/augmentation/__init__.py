"""From candidate questions to the augmented set: the parts of `rl_qg.augment`."""
