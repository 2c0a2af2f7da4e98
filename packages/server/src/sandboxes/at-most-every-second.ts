const SECOND_MS = 1000;

export interface Throttled<T> {
  /** The first is told at once, then the last of each second: a hundred in a line move up a hundred times each. */
  tell(value: T): void;
  /** What has not been told yet is not told any more. */
  cancel(): void;
}

export function atMostEverySecond<T>(tell: (value: T) => void): Throttled<T> {
  let toldAt = Number.NEGATIVE_INFINITY;
  let later: NodeJS.Timeout | undefined;
  let latest: T;
  const now = () => {
    later = undefined;
    toldAt = performance.now();
    tell(latest);
  };
  return {
    tell: (value) => {
      latest = value;
      if (later !== undefined) return;
      const leftMs = toldAt + SECOND_MS - performance.now();
      if (leftMs <= 0) now();
      else later = setTimeout(now, leftMs).unref();
    },
    cancel: () => {
      clearTimeout(later);
      later = undefined;
    },
  };
}
