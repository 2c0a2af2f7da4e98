/** `holdfast doctor`: the engine's inspection of the host, as a table or as JSON. */
import { type DoctorReport, type DoctorRow, type DoctorState, inspectHost } from "@holdfast/engine";
import { type EngineFlags, parseEngineFlags } from "../engine-options.js";
import { type Colours, coloursFor } from "../text/colours.js";
import { formatTable } from "../text/table.js";

export interface DoctorFlags extends EngineFlags {
  readonly json?: boolean;
}

const WIDTH_WITHOUT_A_TERMINAL = 120;

export async function doctor(flags: DoctorFlags): Promise<number> {
  const report = await inspectHost(parseEngineFlags(flags));
  if (flags.json === true) process.stdout.write(`${JSON.stringify(report, undefined, 2)}\n`);
  else process.stdout.write(formatReport(report, coloursFor(process.stdout), process.stdout.columns));
  return report.ok ? 0 : 1;
}

export function formatReport(report: DoctorReport, colours: Colours, width = WIDTH_WITHOUT_A_TERMINAL): string {
  const paint: Readonly<Record<DoctorState, (text: string) => string>> = {
    ok: colours.green,
    weak: colours.yellow,
    missing: colours.red,
  };
  const rows = report.rows.flatMap((row) => {
    const line = [row.name, paint[row.state](row.state), row.by];
    return row.remedy === undefined ? [line] : [line, ["", "", `${colours.bold("remedy:")} ${row.remedy}`]];
  });
  const head = ["what", "state", "by"].map(colours.bold);
  return `${formatTable([head, ...rows], { width })}\n${verdict(report.rows, report.ok)}\n`;
}

function verdict(rows: readonly DoctorRow[], ok: boolean): string {
  if (!ok) {
    const names = rows.filter((row) => row.required && row.state === "missing").map((row) => row.name);
    return `The bubblewrap engine cannot hold its promises here: ${names.join(", ")}.`;
  }
  const weak = rows.filter((row) => row.state !== "ok").map((row) => row.name);
  const but = weak.length === 0 ? "" : ` Less good than it could be: ${weak.join(", ")}.`;
  return `The bubblewrap engine holds its promises here.${but}`;
}
