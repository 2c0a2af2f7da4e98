/** A command's output as the pump takes it. */
import type { OutputEvent } from "@holdfast/engine";
import type { CommandEnding } from "@holdfast/protocol";
import type { OutputItem } from "@holdfast/sdk";

/** `onEnding` is called after the last byte was taken. */
export async function* outputEvents(
  output: AsyncGenerator<OutputItem, CommandEnding>,
  onEnding: (ending: CommandEnding) => void,
): AsyncGenerator<OutputEvent> {
  try {
    for (;;) {
      const { done, value } = await output.next();
      if (done === true) {
        onEnding(value);
        return;
      }
      if (value.type === "gap") {
        yield { kind: "gap", stream: value.stream, offset: value.offset, length: value.length };
      } else {
        const { buffer, byteOffset, length } = value.bytes;
        const bytes = Buffer.from(buffer, byteOffset, length);
        yield { kind: "data", stream: value.stream, offset: value.offset, bytes };
      }
    }
  } finally {
    // Leaving early closes the connection.
    void output.return(undefined as never).catch(() => {});
  }
}
