import type { Waited, Waiting } from "@holdfast/engine";
import { atMostEverySecond } from "./at-most-every-second.js";

/** The callbacks of an admission. */
export interface WaitingNews {
  readonly onWaiting: (waiting: Waiting) => void;
  readonly onWaited: (waited: Waited) => void;
}

/** Tells of a wait for room while it lasts, and of no position in the line once it is over. */
export function waitingNews(tell: (waiting: Waiting) => void, onWaited?: (waited: Waited) => void): WaitingNews {
  const news = atMostEverySecond(tell);
  return {
    onWaiting: news.tell,
    onWaited: (waited) => {
      news.cancel();
      onWaited?.(waited);
    },
  };
}
