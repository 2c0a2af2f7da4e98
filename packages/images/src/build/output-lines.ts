/** A stream of bytes as the lines a person would see: whatever comes, of bounded length and valid text. */

/** A longer line is cut into several. */
export const MAX_LINE_CHARS = 16 * 1024;

export class OutputLines {
  readonly #onLine: (text: string) => void;
  readonly #decoder = new TextDecoder();
  #line = "";
  /** A carriage return has come: if anything but a line's end follows, it overwrites what stands there. */
  #returned = false;

  constructor(onLine: (text: string) => void) {
    this.#onLine = onLine;
  }

  push(bytes: Uint8Array): void {
    this.#take(this.#decoder.decode(bytes, { stream: true }));
  }

  /** Some bytes are missing here: what comes next does not continue what stands there. */
  gap(lengthBytes: number): void {
    this.end();
    this.#onLine(`[${lengthBytes} bytes of output are not kept]`);
  }

  end(): void {
    this.#take(this.#decoder.decode());
    if (this.#line !== "") this.#emit();
    this.#returned = false;
  }

  #take(text: string): void {
    for (const [part] of text.matchAll(/[\r\n]|[^\r\n]+/g)) {
      if (part === "\n") this.#emit();
      else if (part === "\r") this.#returned = true;
      else this.#append(part);
    }
  }

  #append(part: string): void {
    if (this.#returned) {
      this.#line = "";
      this.#returned = false;
    }
    this.#line += part;
    while (this.#line.length > MAX_LINE_CHARS) {
      let end = MAX_LINE_CHARS;
      // Not between the two halves of one character.
      if (isHighSurrogate(this.#line.charCodeAt(end - 1))) end -= 1;
      this.#onLine(this.#line.slice(0, end));
      this.#line = this.#line.slice(end);
    }
  }

  #emit(): void {
    this.#returned = false;
    const line = this.#line;
    this.#line = "";
    this.#onLine(line);
  }
}

function isHighSurrogate(code: number): boolean {
  return code >= 0xd800 && code <= 0xdbff;
}
