// Questions to the server. Every answer is JSON; an error is {"error": "a sentence"}.
import { withQuery } from "./links.js";

export class Refusal extends Error {
  constructor(sentence, status) {
    super(sentence);
    this.status = status;
  }
}

const pageToken = () => document.querySelector('meta[name="page-token"]')?.content ?? "";

async function answer(response) {
  let said;
  try {
    said = await response.json();
  } catch {
    throw new Refusal("The server's answer cannot be read. Look at the terminal where ffscope serve runs.", response.status);
  }
  if (!response.ok) throw new Refusal(said.error ?? `The server refused this (${response.status}).`, response.status);
  return said;
}

async function send(address, options) {
  try {
    return await answer(await fetch(address, options));
  } catch (error) {
    if (error instanceof Refusal || error.name === "AbortError") throw error;
    throw new Refusal("The server does not answer. Is ffscope serve still running?", 0);
  }
}

export function ask(path, asked = {}, { signal } = {}) {
  return send(withQuery(path, asked), { headers: { Accept: "application/json" }, signal });
}

// What changes something carries the page's own token, which no other site can read.
export function tell(path, said, { signal, keepalive = false } = {}) {
  return send(path, {
    method: "POST",
    keepalive, // whether it may outlive the page
    headers: { "Content-Type": "application/json", "X-Page-Token": pageToken() },
    body: JSON.stringify(said),
    signal,
  });
}

const EVERY = 500;

// A question to the model. Others may be in front: `waiting(sentence)` is told, and "" when it is over. A new question with the
// same `place` takes the older one back, and leaving the page takes all of them back.
const underWay = new Map();

export async function askModel(path, asked, { waiting = () => {}, place = path } = {}) {
  underWay.get(place)?.abort();
  const controller = new AbortController();
  underWay.set(place, controller);
  const ticket = crypto.getRandomValues(new Uint32Array(2)).join("-");
  // What is still on its way when the answer is there, or when another question has taken this one's place, says nothing any more.
  const say = (sentence) => underWay.get(place) === controller && waiting(sentence);
  const watch = setInterval(() => tellWait(ticket, say), EVERY);
  try {
    return await ask(path, { ...asked, ticket }, { signal: controller.signal });
  } finally {
    clearInterval(watch);
    say("");
    if (underWay.get(place) === controller) underWay.delete(place);
  }
}

// What was asked for a place is no longer wanted: the model need not go on with it.
export function takeBack(place) {
  underWay.get(place)?.abort();
  underWay.delete(place);
}

async function tellWait(ticket, waiting) {
  const live = await ask("/live.json", { ticket }).catch(() => null);
  if (live === null) return;
  if (live.state === "loading") waiting("The model is being loaded …");
  else if (live.ahead > 0) waiting(`Waiting for the model: ${live.ahead} in front …`);
  else waiting("The model is at work …");
}

export function isTakenBack(error) {
  return error.name === "AbortError";
}
