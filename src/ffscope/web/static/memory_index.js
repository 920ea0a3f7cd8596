// Memories found by their name, pattern, promoted tokens or triggers, in the index that an export's search page holds.

export class MemoryIndex {
  constructor({ memories, patterns, promotes, tokens, triggers, sentences }) {
    const lowered = (texts) => texts.map((text) => text?.toLowerCase() ?? null);
    Object.assign(this, { memories, patterns, promotes, tokens, triggers, sentences });
    this.lowered = {
      memories: lowered(memories), patterns: lowered(patterns), tokens: lowered(tokens), sentences: lowered(sentences),
    };
  }

  get size() {
    return this.memories.length;
  }

  // The memories that hold a text, the closest first: its name, a promoted token as typed, one with other space or case, its
  // pattern, a trigger, part of a token.
  find(text) {
    const query = this.query(text);
    const matches = this.memories.map((_, number) => ({ number, ...this.closeness(number, query) }));
    const close = matches.filter(({ distance }) => distance < Infinity);
    close.sort((a, b) => a.distance - b.distance || a.number - b.number);
    return close.map(({ number, trigger }) => this.shown(number, trigger));
  }

  // What is looked for, and the tokens and sentences that hold it, looked up once for all memories.
  query(text) {
    const wanted = text.toLowerCase();
    const [bare, spaced] = [wanted.trim(), wanted.replaceAll("␣", " ")];
    const { tokens, sentences } = this.lowered;
    return {
      bare,
      spaced,
      sameTokens: placesWhere(this.tokens, (one) => one === text.trim()),
      wholeTokens: placesWhere(tokens, (one) => one === bare || one.replace(/^␣/, "") === bare),
      tokenParts: placesWhere(tokens, (one) => one.includes(bare)),
      sentences: placesWhere(sentences, (one) => one.includes(spaced)),
    };
  }

  // The smaller, the closer; of two that promote the token, the one that ranks it higher.
  closeness(number, query) {
    const { memories, patterns } = this.lowered;
    const promotes = this.promotes[number] ?? [];
    const rank = (tokens) => {
      const at = promotes.findIndex((one) => tokens.has(one));
      return at < 0 ? Infinity : at / promotes.length;
    };
    const trigger = this.triggers[number].findIndex((one) => this.holds(one, query));
    const distances = [
      memories[number] === query.bare ? 0 : Infinity,
      memories[number].startsWith(query.bare) ? 1 : Infinity,
      2 + rank(query.sameTokens),
      3 + rank(query.wholeTokens),
      patterns[number]?.includes(query.bare) ? 4 : Infinity,
      trigger >= 0 ? 5 : Infinity,
      6 + rank(query.tokenParts),
    ];
    return { distance: Math.min(...distances), trigger };
  }

  // Whether a trigger's own prefix holds it; the sentence may do so behind the trigger.
  holds([sentence, end], { sentences, spaced }) {
    return sentences.has(sentence) && this.sentences[sentence].slice(0, end).toLowerCase().includes(spaced);
  }

  shown(number, trigger) {
    const [sentence, end] = this.triggers[number][Math.max(0, trigger)] ?? [];
    return {
      name: this.memories[number],
      pattern: this.patterns[number] ?? null,
      promotes: (this.promotes[number] ?? []).map((one) => this.tokens[one]),
      trigger: sentence === undefined ? null : this.sentences[sentence].slice(0, end),
    };
  }
}

function placesWhere(texts, fits) {
  return new Set(texts.flatMap((text, place) => (fits(text) ? [place] : [])));
}
