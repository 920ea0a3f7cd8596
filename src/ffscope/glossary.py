"""The terms used in the report and the explorer, each explained in one sentence."""

GLOSSARY = {
    "memory": "One hidden dimension of a feed-forward layer, named by layer and index (L3.17): a key and its value.",
    "key": "The input weights of a memory: they decide on which text it fires, and how strongly.",
    "value": "The output weights of a memory: a direction that raises the probability of some next tokens and lowers others.",
    "coefficient": "How strongly a memory's key responds to a prefix (above 0, it fires); the layer adds coefficient × value.",
    "prefix": "The text from the beginning of a sentence up to one of its tokens.",
    "trigger": "One of the prefixes on which a memory has its highest coefficients in the searched text.",
    "residual": "The vector in the residual stream that a feed-forward layer adds its update to.",
    "update": "What a feed-forward layer adds to the residual: the sum of its values, weighted by their coefficients.",
    "output": "The residual after the layer's update has been added.",
    "lens": "How a vector inside the model is read as a distribution over the next token: through the model's own unembedding.",
    "top token": "The most probable token when a value, an update, a residual or an output is read through the lens.",
    "example": "A held-out prefix, not part of the searched text, at which a layer's prediction is examined.",
    "pattern": "What several triggers of a memory have in common: shallow (a word, an ending) or semantic (a topic).",
    "agreement": "A value agrees with a trigger if the value's top token is the token that follows the trigger.",
    "effect": "How much the loss rises (nats) when a memory is taken away, its coefficient set to 0; below 0 the loss falls.",
    "dead": "A memory that fired on none of the searched prefixes.",
}
