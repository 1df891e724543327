"""What experiments with miniatures took from `preset=quickstart` in November 2026, so that they do not change with it.

A script gives these before its own options, which win; those on the embedded corpus add `data=world`.
"""

WORLD_SETTINGS = (
    *("model=miniature", "filters=distinct", "reward=reader", "held_out=qrelscore"),
    *("data.max_train=3000", "data.max_validation=600", "data.labelled_fraction=0.04"),
    *("data.world.train_passages=1200", "data.world.validation_passages=120"),
    *("training.batch_size=16", "training.logging_steps=10", "training.eval_steps=100"),
    *("training.eval_samples=128", "training.save_steps=100", "training.use_cpu=true"),
    *("ce.epochs=30", "ce.learning_rate=1e-3"),
    *("scst.epochs=1", "scst.learning_rate=3e-4", "scst.baseline=leave_one_out", "scst.num_samples=4"),
    *("scst.schedule=constant", "scst.kl_coefficient=0.3", "scst.kl_target=0.2", "scst.max_new_tokens=40"),
    "scst.normalise_advantage=running",
    *("generate.num_beams=1", "generate.max_new_tokens=40", "generate.batch_size=64"),
    "augment.num_samples=2000",
    *("qa.epochs=1.2", "qa.learning_rate=1e-3", "qa.batch_size=8", "qa.max_length=192", "qa.doc_stride=64"),
    *("qa.seeds=[0,1,2]", "qa.threads=1"),
    *("train_answers.max_length=192", "train_answers.doc_stride=64", "train_answers.learning_rate=5e-4"),
)
