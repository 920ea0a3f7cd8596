// What a person says of a memory, and the steps that led there. Nothing here is changed in place: every step stays as it was.

export function noAnswer() {
  return { patterns: [], none: false };
}

export function sameAnswer(one, other) {
  return JSON.stringify(plainAnswer(one)) === JSON.stringify(plainAnswer(other));
}

// As it is sent: an answer and nothing else, whatever the server added to a step.
export function plainAnswer({ patterns, none }) {
  return { patterns: patterns.map(plainPattern), none: Boolean(none) };
}

function plainPattern({ kind, description, covers }) {
  return { kind: kind ?? null, description: description ?? "", covers: [...covers].sort((a, b) => a - b) };
}

export function withPattern(answer, change, number) {
  return { patterns: answer.patterns.map((one, i) => (i === number ? { ...one, ...change } : one)), none: false };
}

export function addedPattern(answer) {
  return { patterns: [...answer.patterns, { kind: null, description: "", covers: [] }], none: false };
}

export function removedPattern(answer, number) {
  return { ...answer, patterns: answer.patterns.filter((_, i) => i !== number) };
}

// A pattern that was added and never touched says nothing.
export function withoutBlanks(answer) {
  const says = ({ kind, description, covers }) => kind !== null || description.trim() !== "" || covers.length > 0;
  return { ...answer, patterns: answer.patterns.filter(says) };
}

export function toggledMark(answer, number, rank) {
  const { covers } = answer.patterns[number];
  return withPattern(answer, { covers: covers.includes(rank) ? covers.filter((one) => one !== rank) : [...covers, rank] }, number);
}

// The pattern whose description is all that differs, or -1.
function retold(one, other) {
  if (one.none !== other.none || one.patterns.length !== other.patterns.length) return -1;
  const alone = (pattern) => ({ patterns: [pattern] });
  const changed = (pattern, i) => (sameAnswer(alone(pattern), alone(other.patterns[i])) ? [] : [i]);
  const different = one.patterns.flatMap(changed);
  if (different.length !== 1) return -1;
  const silent = (answer) => withPattern(answer, { description: "" }, different[0]);
  return sameAnswer(silent(one), silent(other)) ? different[0] : -1;
}

// The steps with one more. Typing on in one description is one step, however often it was saved meanwhile.
export function grownSteps(steps, answer) {
  const [before, last] = [steps.at(-2), steps.at(-1)];
  if (last && sameAnswer(last, answer)) return steps;
  const typing = before ? retold(before, last) : -1;
  const typedOn = typing >= 0 && retold(last, answer) === typing && !sameAnswer(before, answer);
  return [...(typedOn ? steps.slice(0, -1) : steps), answer];
}

// The steps of an earlier sitting. An undo was saved as a step of its own, back to the one before: it takes its step away again.
export function restoredSteps(twin) {
  const said = plainAnswer(twin);
  if (!twin.steps?.length) return [said];
  let steps = [noAnswer()];
  for (const step of [...twin.steps.map(plainAnswer), said]) {
    const undone = steps.length > 1 && sameAnswer(steps.at(-2), step) && !sameAnswer(steps.at(-1), step);
    steps = undone ? steps.slice(0, -1) : grownSteps(steps, step);
  }
  return steps;
}
