"""Fine-tune a language model on other text with a plain loop, so that `ffscope diff` has something to compare.

python examples/finetune.py MODEL "speeches/*.txt" OUT
"""

import argparse
import glob
import time
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


def batches(ids: torch.Tensor, steps: int, rows: int, length: int) -> list[torch.Tensor]:
    """Random windows of the text, rows × length."""
    generator = torch.Generator().manual_seed(0)
    starts = torch.randint(len(ids) - length, (steps, rows), generator=generator)
    return [torch.stack([ids[start : start + length] for start in row]) for row in starts.tolist()]


def main() -> None:
    """Train for some steps, and save the model with its tokenizer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("text", help="a glob of text files")
    parser.add_argument("out", help="the folder to write")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--rows", type=int, default=8, help="windows per step")
    parser.add_argument("--length", type=int, default=128, help="tokens per window")
    parser.add_argument("--rate", type=float, default=5e-4)
    options = parser.parse_args()
    tokenizer = AutoTokenizer.from_pretrained(options.model)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32).to(device).train()
    files = sorted(glob.glob(options.text))
    text = "\n".join(Path(file).read_text(encoding="utf-8") for file in files)
    ids = torch.tensor(tokenizer(text, verbose=False)["input_ids"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.rate)
    start = time.perf_counter()
    for step, rows in enumerate(batches(ids, options.steps, options.rows, options.length), start=1):
        loss = model(rows.to(device), labels=rows.to(device)).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if step % 10 == 0 or step == options.steps:
            print(f"step {step}: loss {loss.item():.3f}, {time.perf_counter() - start:.0f} s", flush=True)
    model.save_pretrained(options.out)
    tokenizer.save_pretrained(options.out)


if __name__ == "__main__":
    main()
