// Every step is saved as a draft, in order, one after another. What could not be saved is kept and tried again.
import { tell } from "./ask.js";
import { sameAnswer } from "./annotate_steps.js";

const PAUSE = 300; // of typing, in milliseconds
const AGAIN = 3000; // after the server did not answer

// What could not be saved outlives the page in this browser, even where the page must be loaded anew to be let in again.
function keepUnsaved(key, answer) {
  try {
    if (answer === null) localStorage.removeItem(key);
    else localStorage.setItem(key, JSON.stringify(answer));
  } catch {
    // a browser that keeps nothing: it is still on the page
  }
}

export class DraftSaver {
  // `say(sentence)` is told when something was saved, `fail(sentence)` when it could not be.
  constructor(path, annotator, { study, say, fail }) {
    Object.assign(this, { path, annotator, say, fail, key: `ffscope-unsaved ${study} ${annotator} ${path}` });
    this.queue = [];
    this.typed = null;
    this.sending = null;
    this.saved = null;
    this.failed = false;
  }

  // A whole step is sent at once; what is being typed when the typing pauses.
  step(answer) {
    this.rest();
    this.queue.push(answer);
    this.send();
  }

  typing(answer) {
    clearTimeout(this.pause);
    this.typed = answer;
    this.pause = setTimeout(() => this.rest(), PAUSE);
  }

  rest() {
    clearTimeout(this.pause);
    if (this.typed === null) return;
    this.queue.push(this.typed);
    this.typed = null;
    this.send();
  }

  get unsaved() {
    return this.typed ?? this.queue.at(-1) ?? null;
  }

  send() {
    clearTimeout(this.again);
    this.sending ??= this.sendAll().finally(() => {
      this.sending = null;
    });
    return this.sending;
  }

  async sendAll() {
    while (this.queue.length) {
      const answer = this.queue[0];
      try {
        if (!this.saved || !sameAnswer(this.saved, answer)) await tell(this.path, { annotator: this.annotator, ...answer });
      } catch (error) {
        this.fail(error.message);
        keepUnsaved(this.key, this.unsaved);
        // A refused step would be refused again; a server that is away may come back.
        this.failed = true;
        if (error.status >= 400 && error.status < 500) {
          this.queue.shift();
          continue;
        }
        this.again = setTimeout(() => this.send(), AGAIN);
        return;
      }
      this.failed = false;
      this.saved = answer;
      this.queue.shift();
      keepUnsaved(this.key, null);
      this.say(`saved ${new Date().toLocaleTimeString("en-GB")}`);
    }
  }

  // All that there is has been sent, or cannot be.
  async settled() {
    this.rest();
    await this.send();
  }

  // The whole answer was saved: no draft is needed any more.
  finished(answer) {
    clearTimeout(this.pause);
    clearTimeout(this.again);
    this.typed = null;
    this.queue = [];
    this.failed = false;
    this.saved = answer;
    keepUnsaved(this.key, null);
  }

  // What an earlier sitting could not save and `now` does not have, or null.
  left(now) {
    try {
      const answer = JSON.parse(localStorage.getItem(this.key));
      if (!Array.isArray(answer?.patterns)) return null;
      if (!sameAnswer(answer, now)) return answer;
      keepUnsaved(this.key, null); // it was saved as the page was left: once there is more, it must not come back
    } catch {
      // nothing that can be read
    }
    return null;
  }

  // The page is being left: one last request that outlives it.
  leave() {
    const answer = this.unsaved;
    if (answer === null) return;
    if (this.failed) keepUnsaved(this.key, answer);
    tell(this.path, { annotator: this.annotator, ...answer }, { keepalive: true }).catch(() => {});
  }
}
