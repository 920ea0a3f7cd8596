"""A study to explore: of a tiny model over hostile text, served in this process."""

import threading
from contextlib import contextmanager
from urllib.parse import urlsplit

import torch
from starlette.testclient import TestClient

import tiny
from command_line import ffscope
from ffscope import read
from ffscope.live.model import Live
from ffscope.models.saving import save_model
from ffscope.web.app import make_app
from ffscope.web.guard import PAGE_TOKEN, Rules
from ffscope.web.model_queue import ModelQueue
from ffscope.web.serving import Address, Server, _listen
from studies import make_study, write_corpus

PAGE = "the page's own token"


def tiny_model(tokenizer, family="llama"):
    return read(tiny.make(family), tokenizer, source=f"tiny/{family}")


def explored_study(tokenizer, folder, family="llama", **options):
    """A whole study of a tiny model over hostile text."""
    return make_study(tiny_model(tokenizer, family), folder, hostile=True, drawn=True, **options)


def compared_studies(tokenizer, folder):
    """Two models, one with a changed memory (L2.7), and their studies over hostile text, compared by the command."""
    write_corpus(folder / "corpus.jsonl", documents=20, hostile=True)
    for name in ("before", "after"):
        model = tiny.make("llama")
        if name == "after":
            with torch.no_grad():
                model.model.layers[2].mlp.down_proj.weight[:, 7] *= -9
        save_model(model, tokenizer, folder / name)
    options = ("--corpus", folder / "corpus.jsonl", "--out", folder / "both", "--diff-tokens", 500)
    result = ffscope("diff", folder / "before", folder / "after", *options)
    assert result.returncode == 0, result.stderr
    (folder / "printed.txt").write_text(result.stdout)


def app_of(folder, tokenizer=None, family="llama", **rules):
    """The server of a study, with its model if a tokenizer is passed."""
    access = Rules.of(rules.pop("host", "127.0.0.1"), page_token=PAGE, token=rules.pop("token", None), **rules)
    load = (
        None if tokenizer is None else lambda: Live(tiny_model(tokenizer, family), bos=True, tokens=40, new_tokens=12)
    )
    app = make_app(folder, rules=access, queue=ModelQueue(load, why="Started with --no-model."))
    # Routes are built when they are first needed, with warnings turned off in a way that other threads may undo, and a warning
    # fails a test: so they are built now.
    app.openapi()
    return app


def client_of(app, **more):
    """A client that sends what a browser on this machine would send."""
    client = TestClient(app, base_url="http://127.0.0.1:8765", raise_server_exceptions=False, **more)
    client.headers[PAGE_TOKEN] = PAGE
    return client


@contextmanager
def served(app):
    """Run a server on a free port, in a thread; yields its address."""
    listening = _listen(Address(port=0))
    server = Server(app)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(20)
        listening.close()


def host_of(address):
    return urlsplit(address).netloc
