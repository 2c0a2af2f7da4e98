/** The page that a person sees in a browser instead of an error in JSON. All of it in one piece, no scripts. */
import type { SandboxEnding } from "@holdfast/protocol";

export interface PageFacts {
  readonly status: number;
  readonly message: string;
  readonly sandboxId?: string;
  readonly port?: number;
  readonly ending?: Pick<SandboxEnding, "message" | "cause">;
}

const ENTITIES: Readonly<Record<string, string>> = {
  "&": "&amp;",
  "<": "&lt;",
  ">": "&gt;",
  '"': "&quot;",
  "'": "&#39;",
};

export function escapeHtml(text: string): string {
  return text.replace(/[&<>"']/g, (character) => ENTITIES[character] ?? "");
}

const STYLE = `
:root { color-scheme: light dark; --paper: #f6f5f1; --card: #fff; --ink: #1d1d1b; --soft: #6b6a64; --line: #e3e1d9; --mark: #b3411e; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #161614; --card: #1f1f1c; --ink: #eceae3; --soft: #99978e; --line: #34332e; --mark: #ff8a5c; }
}
* { box-sizing: border-box; }
body { margin: 0; min-height: 100vh; display: grid; place-items: center; padding: 1.5rem; background: var(--paper);
  color: var(--ink); font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
main { width: 100%; max-width: 34rem; background: var(--card); border: 1px solid var(--line); border-radius: 14px;
  padding: 2rem 2.25rem; box-shadow: 0 8px 30px rgb(0 0 0 / 6%); }
.code { margin: 0 0 .4rem; font-size: .8rem; font-weight: 600; letter-spacing: .08em; color: var(--mark); }
h1 { margin: 0 0 .9rem; font-size: 1.45rem; line-height: 1.25; font-weight: 650; text-wrap: balance; }
p { margin: 0 0 1rem; }
.why { border-left: 3px solid var(--mark); padding-left: .9rem; overflow-wrap: anywhere; }
dl { margin: 1.4rem 0 0; padding-top: 1.1rem; border-top: 1px solid var(--line); display: grid;
  grid-template-columns: auto 1fr; gap: .35rem 1.2rem; font-size: .9rem; }
dt { color: var(--soft); }
dd { margin: 0; font-family: ui-monospace, "SF Mono", Menlo, Consolas, monospace; overflow-wrap: anywhere; }
.hint { color: var(--soft); font-size: .92rem; margin-bottom: 0; }
`;

interface Wording {
  /** In the browser's tab, where it is not the heading. */
  readonly tab?: string;
  readonly title: string;
  readonly hint: string;
}

function wordingOf({ status, port, ending, message }: PageFacts): Wording {
  if (status === 502 && port !== undefined) {
    return {
      // E2B's words, which programs look for.
      tab: "Closed Port Error",
      title: `Nothing listens on port ${port}`,
      hint: "The sandbox is running. Start a server on this port inside it, then load this page again.",
    };
  }
  if (status === 502 && ending !== undefined) {
    return { title: "This sandbox has ended", hint: "It cannot be brought back. Create a new one to go on." };
  }
  if (status === 502) {
    return {
      title: "No such sandbox is running",
      hint: "It was never here, has ended, or is paused. A paused one runs again once a client connects to it.",
    };
  }
  if (status === 409) return { title: "One moment", hint: "The sandbox is changing its state. Load this page again." };
  if (status === 403) {
    return {
      title: "This sandbox is not public",
      hint: "Its owner can send the traffic access token along, in the header e2b-traffic-access-token.",
    };
  }
  return { title: message, hint: "" };
}

export function renderRefusalPage(facts: PageFacts): string {
  const { title, hint, tab = title } = wordingOf(facts);
  const rows = [
    ["Sandbox", facts.sandboxId],
    ["Port", facts.port?.toString()],
    ["Cause", facts.ending?.cause.kind],
    ["Answer", `${facts.status} ${facts.message}`],
  ].filter((row): row is [string, string] => row[1] !== undefined);
  const why = facts.ending === undefined ? "" : `<p class="why">${escapeHtml(facts.ending.message)}</p>`;
  const list = rows.map(([name, value]) => `<dt>${escapeHtml(name)}</dt><dd>${escapeHtml(value)}</dd>`).join("");
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="robots" content="noindex">
<title>${escapeHtml(tab)}</title>
<style>${STYLE}</style>
</head>
<body>
<main>
<p class="code">${facts.status}</p>
<h1>${escapeHtml(title)}</h1>
${why}${hint === "" ? "" : `<p class="hint">${escapeHtml(hint)}</p>`}
<dl>${list}</dl>
</main>
</body>
</html>
`;
}
