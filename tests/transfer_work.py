"""A program in place of `rl_qg` for the tests of transfer: its models and questions say how they were made, and an
evaluation counts the trainings.

A job whose command line contains the text in the file `fail` ends with an error.
"""

import json
import sys
from pathlib import Path

PROGRAM = "tests.transfer_work"


def main() -> None:
    command, *arguments = sys.argv[1:]
    options = dict(text.split("=", 1) for text in arguments)
    with Path("calls").open("a") as stream:
        stream.write(f"{command}\n")
    if Path("fail").exists() and Path("fail").read_text() in " ".join(arguments):
        sys.exit("the disk is on fire")
    if command == "train":
        before = Path(options["model.path"], "made").read_text() if "model.path" in options else ""
        folder = Path(options["output_dir"], options["stages"])
        folder.mkdir(parents=True)
        (folder / "made").write_text(f"{before}{options['stages']} ")
    elif command == "generate":
        output = Path(options["output"])
        output.parent.mkdir(parents=True)
        output.write_text(f"{Path(options['model.path'], 'made').read_text()}{options['seed']}")
    else:
        *made, seed = Path(options["predictions"]).read_text().split()
        value = len(made) / 10 + int(seed) / 100
        row = {"predictions": "x", "by": "all", "kind": "", "value": value, "low": value - 0.05, "high": value + 0.05}
        rows = [{**row, "metric": "bleu4", "form": "mean of questions", "n": 3, "value": 0.9}]
        rows += [{**row, "metric": "bleu4", "form": "corpus", "n": 3}, {**row, "by": "length", "metric": "bleu4"}]
        folder = Path(options["output"])
        folder.mkdir(parents=True)
        text = json.dumps({"scores": rows, "signatures": {"bleu4": f"bleu4|{options['language']}"}})
        (folder / "evaluate.json").write_text(text)


if __name__ == "__main__":
    main()
