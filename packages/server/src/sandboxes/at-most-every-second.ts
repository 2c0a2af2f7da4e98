const SECOND_MS = 1000;

/** The first is told at once, then the last of each second: a hundred in a line move up a hundred times each. */
export function atMostEverySecond<T>(tell: (value: T) => void): (value: T) => void {
  let toldAt = Number.NEGATIVE_INFINITY;
  let later: NodeJS.Timeout | undefined;
  let latest: T;
  return (value) => {
    latest = value;
    if (later !== undefined) return;
    const leftMs = toldAt + SECOND_MS - performance.now();
    const now = () => {
      later = undefined;
      toldAt = performance.now();
      tell(latest);
    };
    if (leftMs <= 0) now();
    else later = setTimeout(now, leftMs).unref();
  };
}
