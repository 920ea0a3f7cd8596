// Saves every step as a draft, in order. A draft that could not be saved is stored locally and sent again.
import { postJson } from "./requests.js";
import { sameAnswer } from "./annotate_steps.js";

const TYPING_PAUSE = 300; // milliseconds without typing before a draft is saved
const RETRY_AFTER = 3000; // milliseconds after the server did not answer

// Stores an unsaved draft in the browser, so that it survives reloading the page.
function storeUnsaved(key, answer) {
  try {
    if (answer === null) localStorage.removeItem(key);
    else localStorage.setItem(key, JSON.stringify(answer));
  } catch {
    // the browser blocks local storage: the draft is still on the page
  }
}

export class DraftSaver {
  // `say(sentence)` is called after a draft was saved, `fail(sentence)` when it could not be.
  constructor(path, annotator, { study, say, fail }) {
    Object.assign(this, { path, annotator, say, fail, key: `ffscope-unsaved ${study} ${annotator} ${path}` });
    this.queue = [];
    this.typed = null;
    this.sending = null;
    this.saved = null;
    this.failed = false;
  }

  // A complete step is sent at once, typed text after a pause.
  step(answer) {
    this.flush();
    this.queue.push(answer);
    this.send();
  }

  typing(answer) {
    clearTimeout(this.pause);
    this.typed = answer;
    this.pause = setTimeout(() => this.flush(), TYPING_PAUSE);
  }

  flush() {
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
        if (!this.saved || !sameAnswer(this.saved, answer)) await postJson(this.path, { annotator: this.annotator, ...answer });
      } catch (error) {
        this.fail(error.message);
        storeUnsaved(this.key, this.unsaved);
        // A refused draft would be refused again; a server that does not answer may come back.
        this.failed = true;
        if (error.status >= 400 && error.status < 500) {
          this.queue.shift();
          continue;
        }
        this.again = setTimeout(() => this.send(), RETRY_AFTER);
        return;
      }
      this.failed = false;
      this.saved = answer;
      this.queue.shift();
      storeUnsaved(this.key, null);
      this.say(`saved ${new Date().toLocaleTimeString("en-GB")}`);
    }
  }

  // Resolves when everything has been sent or cannot be.
  async settled() {
    this.flush();
    await this.send();
  }

  // The finished annotation was saved: drafts are no longer needed.
  finished(answer) {
    clearTimeout(this.pause);
    clearTimeout(this.again);
    this.typed = null;
    this.queue = [];
    this.failed = false;
    this.saved = answer;
    storeUnsaved(this.key, null);
  }

  // The draft that an earlier visit could not save, if it differs from `current`; else null.
  unsavedBefore(current) {
    try {
      const answer = JSON.parse(localStorage.getItem(this.key));
      if (!Array.isArray(answer?.patterns)) return null;
      if (!sameAnswer(answer, current)) return answer;
      storeUnsaved(this.key, null); // it was saved after all, and must not overwrite later steps
    } catch {
      // nothing stored, or unreadable
    }
    return null;
  }

  // When the page is left: one last request, which may outlive the page.
  leave() {
    const answer = this.unsaved;
    if (answer === null) return;
    if (this.failed) storeUnsaved(this.key, answer);
    postJson(this.path, { annotator: this.annotator, ...answer }, { keepalive: true }).catch(() => {});
  }
}
