"""The command that makes a study again."""

import shlex

from ffscope.study.folder import Study


def reproduce(study: Study) -> str:
    """The command that makes this study again."""
    settings, model = study.settings, study.manifest["model"]
    words = ["ffscope", "run", model["source"] or "MODEL", "--corpus", settings["corpus"], "--out", "study"]
    for name in (
        "sentences",
        "minutes",
        "held_out",
        "max_tokens",
        "top",
        "prefixes",
        "language",
        "field",
        "seed",
        "batch_tokens",
    ):
        if settings.get(name) is not None:
            words += [f"--{name.replace('_', '-')}", str(settings[name])]
    for name in ("lens", "examples", "mutation_memories", "mutation_triggers"):
        if name in settings:
            words += [f"--{name.replace('_', '-')}", str(settings[name])]
    labelled = study.manifest["stages"].get("patterns", {})
    if labelled.get("done"):
        words += ["--pattern-triggers", str(labelled["pattern_triggers"])]
        words += (
            ["--encoder", "model"] if labelled["encoder"] and " of the studied model" in labelled["encoder"] else []
        )
    for name in ("layers", "memories"):
        if settings.get(name) is not None:
            words += [f"--{name}", ",".join(map(str, settings[name]))]
    flags = {"--no-dedupe": not settings["dedupe"], "--no-bos": not settings["bos"], "--negative": settings["negative"]}
    words += [flag for flag, given in flags.items() if given]
    return shlex.join([*words, "--dtype", model["dtype"]])
