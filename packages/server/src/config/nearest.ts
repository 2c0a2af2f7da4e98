/** The known name that somebody probably meant. */

/** How many letters to add, leave out or change. */
function distance(from: string, to: string): number {
  let above = Array.from({ length: to.length + 1 }, (_, column) => column);
  for (let row = 1; row <= from.length; row++) {
    const current = [row];
    for (let column = 1; column <= to.length; column++) {
      const changed = (above[column - 1] ?? 0) + (from[row - 1] === to[column - 1] ? 0 : 1);
      current.push(Math.min(changed, (above[column] ?? 0) + 1, (current[column - 1] ?? 0) + 1));
    }
    above = current;
  }
  return above[to.length] ?? 0;
}

function plain(name: string): string {
  return name.toLowerCase().replaceAll(/[-_]/g, "");
}

export function nearestName(name: string, known: readonly string[]): string | undefined {
  if (name.length > 100) return undefined;
  const wanted = plain(name);
  const ranked = known
    .map((candidate) => ({ candidate, away: distance(wanted, plain(candidate)) }))
    .sort((a, b) => a.away - b.away);
  const best = ranked[0];
  if (best !== undefined && best.away <= Math.max(2, wanted.length / 3)) return best.candidate;
  return wanted.length < 3 ? undefined : known.find((candidate) => plain(candidate).includes(wanted));
}
