// What one part of the prompt page asks of the model: its waiting line, and what went wrong, near where it belongs.
import { askModel, isCancelled, cancelQuestion } from "./requests.js";
import { bdi, h, replace } from "./dom.js";

export class ModelRequest {
  constructor(place) {
    this.place = place;
    this.turn = 0;
    this.status = h("p.quiet.prompt-status", { role: "status" });
    this.trouble = h("div", { "aria-live": "assertive" });
  }

  // The answer; null where it was refused, which is then shown, or where another question has taken its place.
  async getJson(path, asked, { busy }) {
    const turn = ++this.turn;
    const mine = () => turn === this.turn;
    busy.setAttribute("aria-busy", "true");
    this.status.textContent = "Asking the model …";
    try {
      const said = await askModel(path, asked, { place: this.place, waiting: (sentence) => mine() && this.wait(sentence) });
      if (!mine()) return null;
      replace(this.trouble);
      return said;
    } catch (error) {
      if (mine() && !isCancelled(error)) this.refuse(error.message);
      return null;
    } finally {
      if (mine()) this.rest(busy);
    }
  }

  // Whatever is under way is no longer wanted.
  forget(busy) {
    this.turn++;
    cancelQuestion(this.place);
    replace(this.trouble);
    this.rest(busy);
  }

  wait(sentence) {
    this.status.textContent = sentence;
  }

  rest(busy) {
    this.wait("");
    busy.removeAttribute("aria-busy");
  }

  refuse(sentence) {
    replace(this.trouble, h("p.problem", bdi(String(sentence).slice(0, 2000))));
  }
}
