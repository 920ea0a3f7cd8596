// Questions of one part of the prompt page to the model, with a status line and an error message beside that part.
import { askModel, isCancelled, cancelQuestion } from "./requests.js";
import { bdi, h, replace } from "./dom.js";

export class ModelRequest {
  constructor(place) {
    this.place = place;
    this.turn = 0;
    this.status = h("p.quiet.prompt-status", { role: "status" });
    this.error = h("div", { "aria-live": "assertive" });
  }

  // The answer; null if the question failed, which is then shown, or if a newer question replaced it.
  async ask(path, parameters, { busy }) {
    const turn = ++this.turn;
    const isLatest = () => turn === this.turn;
    busy.setAttribute("aria-busy", "true");
    this.status.textContent = "Asking the model …";
    try {
      const waiting = (sentence) => isLatest() && this.setStatus(sentence);
      const answer = await askModel(path, parameters, { place: this.place, waiting });
      if (!isLatest()) return null;
      replace(this.error);
      return answer;
    } catch (error) {
      if (isLatest() && !isCancelled(error)) this.showError(error.message);
      return null;
    } finally {
      if (isLatest()) this.finish(busy);
    }
  }

  // Cancels the pending question, if any.
  cancel(busy) {
    this.turn++;
    cancelQuestion(this.place);
    replace(this.error);
    this.finish(busy);
  }

  setStatus(sentence) {
    this.status.textContent = sentence;
  }

  finish(busy) {
    this.setStatus("");
    busy.removeAttribute("aria-busy");
  }

  showError(sentence) {
    replace(this.error, h("p.problem", bdi(String(sentence).slice(0, 2000))));
  }
}
