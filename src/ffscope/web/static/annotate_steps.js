// An annotation and its history of steps, for undo. Answers are never changed in place.

export function noAnswer() {
  return { patterns: [], none: false };
}

export function sameAnswer(first, second) {
  return JSON.stringify(plainAnswer(first)) === JSON.stringify(plainAnswer(second));
}

// The answer as it is sent, without fields that the server added.
export function plainAnswer({ patterns, none }) {
  return { patterns: patterns.map(plainPattern), none: Boolean(none) };
}

function plainPattern({ kind, description, covers }) {
  return { kind: kind ?? null, description: description ?? "", covers: [...covers].sort((a, b) => a - b) };
}

export function withPattern(answer, change, number) {
  return { patterns: answer.patterns.map((pattern, i) => (i === number ? { ...pattern, ...change } : pattern)), none: false };
}

export function addedPattern(answer) {
  return { patterns: [...answer.patterns, { kind: null, description: "", covers: [] }], none: false };
}

export function removedPattern(answer, number) {
  return { ...answer, patterns: answer.patterns.filter((_, i) => i !== number) };
}

// Without patterns that were added and left empty.
export function withoutBlanks(answer) {
  const isFilled = ({ kind, description, covers }) => kind !== null || description.trim() !== "" || covers.length > 0;
  return { ...answer, patterns: answer.patterns.filter(isFilled) };
}

export function toggledMark(answer, number, rank) {
  const { covers } = answer.patterns[number];
  const others = covers.filter((other) => other !== rank);
  return withPattern(answer, { covers: covers.includes(rank) ? others : [...covers, rank] }, number);
}

// The index of the pattern if its description is the only difference, else -1.
function rewordedPattern(first, second) {
  if (first.none !== second.none || first.patterns.length !== second.patterns.length) return -1;
  const alone = (pattern) => ({ patterns: [pattern] });
  const changed = (pattern, i) => (sameAnswer(alone(pattern), alone(second.patterns[i])) ? [] : [i]);
  const different = first.patterns.flatMap(changed);
  if (different.length !== 1) return -1;
  const undescribed = (answer) => withPattern(answer, { description: "" }, different[0]);
  return sameAnswer(undescribed(first), undescribed(second)) ? different[0] : -1;
}

// The steps with one more. Continued typing in one description counts as one step, however often it was saved.
export function grownSteps(steps, answer) {
  const [before, last] = [steps.at(-2), steps.at(-1)];
  if (last && sameAnswer(last, answer)) return steps;
  const typing = before ? rewordedPattern(before, last) : -1;
  const continues = typing >= 0 && rewordedPattern(last, answer) === typing && !sameAnswer(before, answer);
  return [...(continues ? steps.slice(0, -1) : steps), answer];
}

// The steps of an earlier visit. An undo was saved as a step equal to the one before last: it removes the last step again.
export function restoredSteps(data) {
  const answer = plainAnswer(data);
  if (!data.steps?.length) return [answer];
  let steps = [noAnswer()];
  for (const step of [...data.steps.map(plainAnswer), answer]) {
    const isUndo = steps.length > 1 && sameAnswer(steps.at(-2), step) && !sameAnswer(steps.at(-1), step);
    steps = isUndo ? steps.slice(0, -1) : grownSteps(steps, step);
  }
  return steps;
}
