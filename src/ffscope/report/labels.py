"""What series and measures are called where people read them; files keep the short names."""

LABELS = {
    # series of the figures
    "shallow": "prefixes with a shallow pattern only",
    "both": "prefixes with both kinds of pattern",
    "semantic": "prefixes with a semantic pattern only",
    "not covered": "prefixes without a pattern",
    "first": "change in coefficient without the first token",
    "last": "change in coefficient without the last token",
    "random": "change in coefficient without a random token",
    "agreement": "memories that agree with their first trigger",
    "next_rank": "rank of the next token in the value (1 = top)",
    "active": "active memories (share of the layer)",
    "effective": "memories that carry 90 % of the layer's update",
    "zero_agreement": "examples where no memory agrees with the layer",
    "residual_agreement": "examples where the residual has the final prediction",
    "residual_prob": "probability of the final prediction in the residual",
    "residual_rank": "rank of the final prediction in the residual (1 = top)",
    "case agreement": "examples where residual and layer both predict the output",
    "case residual": "examples where only the residual predicts the output",
    "case ffn": "examples where only the layer predicts the output",
    "case composition": "examples where neither predicts the output",
    # measures of one memory
    "fires": "share of prefixes on which the memory fires",
    "max_prob": "highest probability in the value's distribution",
    "precision": "share of triggers followed by the value's top token",
    "layer": "layer",
}
