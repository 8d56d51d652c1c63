"""All benchmarks: `python -m bench` lists them, `python -m bench NAME…` or `python -m bench all` runs them.

Whatever follows `--` goes to each benchmark: `python -m bench pretraining finetuning -- --quick --data DIR`.
"""

from __future__ import annotations

import subprocess
import sys

BENCHMARKS = {
    "encoding": "byte-level BPE on one core against tiktoken and tokenizers; half a minute; needs data",
    "memory": "peak memory of vocabulary and shards at 100 MB and 1 GB of text; a few minutes",
    "pretraining": "tokens/s against a plain GPT-2 loop, and against bare matrix products; about 10 minutes",
    "masked": "tokens/s of BERT against a plain BertForPreTraining loop; about 8 minutes",
    "memory_reuse": "a token after 512 others: with Transformer-XL's memory against reading them again; a minute",
    "recurrent": "tokens/s of AWD-LSTM and ELMo's biLM against a plain torch.nn.LSTM loop; about 2 minutes",
    "word_vectors": "words/s and memory of word2vec against gensim by itself; about 10 minutes; needs data",
    "view_recipe": "text and labels to predictions against gensim and scikit-learn; about 10 minutes; needs data",
    "start": "how long `foretext --help` takes; seconds",
    "finetuning": "GPT (or --system bert) against transformers.Trainer on SST-2 and IMDb; about 15 minutes; needs data",
    "predicting": "rows/s and memory of predict on runs with views; about 5 minutes; needs data",
    "in_context": "scoring with five examples against lm-evaluation-harness; a few minutes; needs data and the harness",
    "time_to_loss": "time to the plain loop's best validation loss; about 25 minutes; needs data",
    "time_to_gpt": "time until modern reaches GPT's loss after 20 minutes; about 45 minutes; needs data",
}


def main(arguments: list[str]) -> int:
    split = arguments.index("--") if "--" in arguments else len(arguments)
    names, passed = arguments[:split], arguments[split + 1 :]
    if names == ["all"]:
        names = list(BENCHMARKS)
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown or not names:
        if unknown:
            print(f"there is no benchmark {unknown[0]!r}\n", file=sys.stderr)
        print("python -m bench NAME… | all   [-- --quick --data DIR …]\n")
        for name, what in BENCHMARKS.items():
            print(f"  {name:14} {what}")
        return 2 if unknown else 0
    # Each in a process of its own: allocator settings and thread pools of one must not reach the next.
    failed = [name for name in names if subprocess.run([sys.executable, "-m", f"bench.{name}", *passed]).returncode]
    for name in failed:
        print(f"bench.{name} failed", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
