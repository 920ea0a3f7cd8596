// Requests to the server. Every response is JSON; an error is {"error": "a sentence"}.
import { withQuery } from "./links.js";

export class RequestError extends Error {
  constructor(sentence, status) {
    super(sentence);
    this.status = status;
  }
}

const pageToken = () => document.querySelector('meta[name="page-token"]')?.content ?? "";

async function parsed(response) {
  let json;
  try {
    json = await response.json();
  } catch {
    throw new RequestError("The server's response cannot be read. See the terminal where ffscope serve runs.", response.status);
  }
  if (!response.ok) throw new RequestError(json.error ?? `The server refused the request (${response.status}).`, response.status);
  return json;
}

async function send(address, options) {
  try {
    return await parsed(await fetch(address, options));
  } catch (error) {
    if (error instanceof RequestError || error.name === "AbortError") throw error;
    throw new RequestError("The server does not answer. Is ffscope serve still running?", 0);
  }
}

export function getJson(path, parameters = {}, { signal } = {}) {
  return send(withQuery(path, parameters), { headers: { Accept: "application/json" }, signal });
}

// A request that changes data carries the page token, which other sites cannot read.
export function postJson(path, content, { signal, keepalive = false } = {}) {
  return send(path, {
    method: "POST",
    keepalive, // whether the request may outlive the page
    headers: { "Content-Type": "application/json", "X-Page-Token": pageToken() },
    body: JSON.stringify(content),
    signal,
  });
}

const STATUS_INTERVAL = 500; // milliseconds

// A question to the model. `waiting(sentence)` is called while it waits in the queue, and with "" at the end. A new question for
// the same `place` cancels the older one; leaving the page cancels all.
const pendingQuestions = new Map();

export async function askModel(path, parameters, { waiting = () => {}, place = path } = {}) {
  pendingQuestions.get(place)?.abort();
  const controller = new AbortController();
  pendingQuestions.set(place, controller);
  const ticket = crypto.getRandomValues(new Uint32Array(2)).join("-");
  // A status that arrives after the answer, or after a newer question, is ignored.
  const say = (sentence) => pendingQuestions.get(place) === controller && waiting(sentence);
  const watch = setInterval(() => reportQueue(ticket, say), STATUS_INTERVAL);
  try {
    return await getJson(path, { ...parameters, ticket }, { signal: controller.signal });
  } finally {
    clearInterval(watch);
    say("");
    if (pendingQuestions.get(place) === controller) pendingQuestions.delete(place);
  }
}

// Cancels the question for a place, so that the model stops working on it.
export function cancelQuestion(place) {
  pendingQuestions.get(place)?.abort();
  pendingQuestions.delete(place);
}

async function reportQueue(ticket, waiting) {
  const live = await getJson("/live.json", { ticket }).catch(() => null);
  if (live === null) return;
  if (live.state === "loading") waiting("The model is loading …");
  else if (live.ahead > 0) waiting(`Waiting for the model: ${live.ahead} ahead …`);
  else waiting("The model is computing …");
}

export function isCancelled(error) {
  return error.name === "AbortError";
}
