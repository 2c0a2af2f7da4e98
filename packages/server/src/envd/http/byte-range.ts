/** `Range: bytes=…`, for one range. Several at once are answered with the whole, as the standard allows. */

export interface ByteRange {
  readonly offset: number;
  readonly length: number;
}

/** `unsatisfiable`: a range beyond the end. Undefined: nothing that we serve in parts. */
export function parseRange(header: string | undefined, sizeBytes: number): ByteRange | "unsatisfiable" | undefined {
  const [, first, last] = /^bytes=([0-9]*)-([0-9]*)$/i.exec(header?.replaceAll(/[ \t]/g, "") ?? "") ?? [];
  if (first === undefined || last === undefined || (first === "" && last === "")) return undefined;
  if (first === "") {
    const length = Math.min(Number(last), sizeBytes);
    return length === 0 ? "unsatisfiable" : { offset: sizeBytes - length, length };
  }
  const offset = Number(first);
  const end = last === "" ? sizeBytes - 1 : Math.min(Number(last), sizeBytes - 1);
  if (last !== "" && Number(last) < offset) return undefined;
  return offset >= sizeBytes ? "unsatisfiable" : { offset, length: end - offset + 1 };
}
