"""A corpus that is large for its model, searched under a memory ceiling."""

import json
import random
import subprocess
import sys

import pytest

import tiny
from ffscope.study.folder import Study

SENTENCES = 1_000_000
CEILING = 500  # MiB above the loaded model

SEARCH = """
import resource, sys
from pathlib import Path
import ffscope
from ffscope.options.corpus import CorpusOptions
from ffscope.pipeline import triggers

def memory(what):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(what))

model, corpus, out, ceiling = sys.argv[1:]
loaded = ffscope.load(model, "cpu", "float32")
loaded.trace("A first pass.")
Path("/proc/self/clear_refs").write_text("5")
before = memory("VmRSS")
# Beyond this the system gives no more memory, and the search would end in an error.
resource.setrlimit(resource.RLIMIT_DATA, ((memory("VmData") + 1024 * int(ceiling)) * 1024,) * 2)
triggers(loaded, CorpusOptions(corpus), out)
print((memory("VmHWM") - before) // 1024)
"""


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's account of a process")
def test_a_million_sentences_under_a_memory_ceiling(tmp_path, tokenizer):
    tiny.make("llama").save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    draw = random.Random(0)
    with (tmp_path / "text.jsonl").open("w") as out:
        for _ in range(SENTENCES // 20):
            words = ["".join(draw.choices("abcdefghijklmnop", k=draw.randint(7, 11))) for _ in range(20)]
            print(json.dumps({"text": " ".join(f"{word.capitalize()}." for word in words)}), file=out)
    command = [
        sys.executable,
        "-c",
        SEARCH,
        tmp_path / "model",
        tmp_path / "text.jsonl",
        tmp_path / "study",
        str(CEILING),
    ]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    corpus = Study.open(tmp_path / "study").manifest["corpus"]
    assert corpus["sentences"] + corpus["duplicates"] > 0.99 * SENTENCES
    print(f"peak above the model: {result.stdout.strip()} MiB; {corpus}")
    assert int(result.stdout) < CEILING
