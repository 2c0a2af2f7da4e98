/** The commands that a guest remembers. */
import { HoldfastError } from "@holdfast/protocol";
import { FIELD, FRAME, NOTE, ProtocolError } from "@holdfast/protocol/guest";
import type { CommandSummary } from "../engine.js";
import type { GuestConnection } from "../guest/connection.js";
import type { Endings } from "./endings.js";

const MAX_COMMANDS_LISTED = 4096;

export async function listCommands(connection: GuestConnection): Promise<CommandSummary[]> {
  const commands: CommandSummary[] = [];
  await new Promise<void>((resolve, reject) => {
    connection.openStream(FRAME.COMMANDS, [], {
      onNote: (note) => {
        if (note.number(FIELD.NOTE_KIND) !== NOTE.COMMAND || commands.length >= MAX_COMMANDS_LISTED) {
          throw new ProtocolError("the guest lists more commands than it can remember");
        }
        commands.push({
          id: note.number(FIELD.COMMAND_ID) ?? 0,
          pid: note.number(FIELD.PID) ?? 0,
          tag: note.text(FIELD.TAG),
          argv: note.texts(FIELD.ARG),
          running: note.number(FIELD.EXIT_KIND) === undefined,
          stdoutBytes: note.number(FIELD.OUT_BYTES) ?? 0,
          stderrBytes: note.number(FIELD.ERR_BYTES) ?? 0,
        });
      },
      onEnd: (result) => (result instanceof HoldfastError ? reject(result) : resolve()),
    });
  });
  return commands;
}

/** The first command id that nothing in the sandbox has used. */
export function freeCommandId(commands: readonly CommandSummary[], endings: Endings): number {
  return commands.reduce((highest, command) => Math.max(highest, command.id), endings.highestId()) + 1;
}
