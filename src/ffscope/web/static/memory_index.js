// Search in the index embedded in an export's search page: by name, pattern, promoted tokens or triggers.

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

  // The memories that match a text, best first: by name, promoted token as typed, promoted token ignoring space and case,
  // pattern, trigger, part of a promoted token.
  find(text) {
    const query = this.query(text);
    const matches = this.memories.map((_, number) => ({ number, ...this.closeness(number, query) }));
    const close = matches.filter(({ distance }) => distance < Infinity);
    close.sort((a, b) => a.distance - b.distance || a.number - b.number);
    return close.map(({ number, trigger }) => this.result(number, trigger));
  }

  // The query, and the tokens and sentences that contain it, looked up once for all memories.
  query(text) {
    const lowered = text.toLowerCase();
    const [bare, spaced] = [lowered.trim(), lowered.replaceAll("␣", " ")];
    const { tokens, sentences } = this.lowered;
    return {
      bare,
      spaced,
      sameTokens: placesWhere(this.tokens, (token) => token === text.trim()),
      wholeTokens: placesWhere(tokens, (token) => token === bare || token.replace(/^␣/, "") === bare),
      tokenParts: placesWhere(tokens, (token) => token.includes(bare)),
      sentences: placesWhere(sentences, (sentence) => sentence.includes(spaced)),
    };
  }

  // Smaller is a better match; among memories that promote the token, the one that ranks it higher is better.
  closeness(number, query) {
    const { memories, patterns } = this.lowered;
    const promotes = this.promotes[number] ?? [];
    const rank = (tokens) => {
      const at = promotes.findIndex((token) => tokens.has(token));
      return at < 0 ? Infinity : at / promotes.length;
    };
    const trigger = this.triggers[number].findIndex((prefix) => this.prefixMatches(prefix, query));
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

  // Whether the prefix itself contains the query; its sentence may contain it only after the prefix.
  prefixMatches([sentence, end], { sentences, spaced }) {
    return sentences.has(sentence) && this.sentences[sentence].slice(0, end).toLowerCase().includes(spaced);
  }

  result(number, trigger) {
    const [sentence, end] = this.triggers[number][Math.max(0, trigger)] ?? [];
    return {
      name: this.memories[number],
      pattern: this.patterns[number] ?? null,
      promotes: (this.promotes[number] ?? []).map((token) => this.tokens[token]),
      trigger: sentence === undefined ? null : this.sentences[sentence].slice(0, end),
    };
  }
}

function placesWhere(texts, test) {
  return new Set(texts.flatMap((text, place) => (test(text) ? [place] : [])));
}
