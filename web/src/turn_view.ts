// What the views of the turns share.

import type { Answer } from "./answer";
import type { Turn } from "./conversation";
import type { ToolCallsActions } from "./tool_calls_view";

export interface TurnActions extends ToolCallsActions {
  edit(turn: Turn, text: string): void;
  regenerate(turn: Turn): void;
}

export interface TurnState {
  place: { index: number; count: number };
  locked: boolean; // an answer is being written: the path must stay as it is
  answer: Answer | null; // what writes this turn now
  results: Turn | null; // the turn behind an answer that calls tools
  resultsPlace: { index: number; count: number };
}

export interface TurnView {
  readonly element: HTMLElement;
  update(state: TurnState): void;
}
