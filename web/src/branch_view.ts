// The arrows that lead through the siblings of a turn: < 2/3 >.

import { h, iconButton } from "./dom";

export class BranchView {
  readonly element: HTMLElement;
  private readonly back: HTMLButtonElement;
  private readonly forward: HTMLButtonElement;
  private readonly place = h("span", { class: "branch-place" });

  constructor(onStep: (step: number) => void) {
    this.back = iconButton("left", "Previous version", () => onStep(-1));
    this.forward = iconButton("right", "Next version", () => onStep(1));
    this.element = h("span", { class: "branches", role: "group", "aria-label": "Versions" }, this.back, this.place, this.forward);
  }

  set(index: number, count: number, locked: boolean): void {
    this.element.hidden = count < 2;
    this.place.textContent = `${index + 1}/${count}`;
    this.back.disabled = locked || index === 0;
    this.forward.disabled = locked || index === count - 1;
  }
}
