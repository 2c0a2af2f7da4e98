/** In which form a file is sent. */

export type ContentCoding = "gzip" | "identity";

interface Offer {
  readonly coding: string;
  readonly weight: number;
}

function parseOffers(header: string): Offer[] {
  return header
    .toLowerCase()
    .split(",")
    .map((item) => {
      const [coding = "", ...parameters] = item.split(";").map((part) => part.trim());
      const weight = parameters.find((parameter) => parameter.startsWith("q="))?.slice(2);
      return { coding, weight: weight === undefined ? 1 : Math.min(1, Math.max(0, Number(weight) || 0)) };
    })
    .filter(({ coding }) => coding !== "");
}

/**
 * Undefined if nothing we have is acceptable. HTTP libraries announce `gzip, deflate, br` of their own accord, and on a
 * fast link compressing costs far more time than it saves: so gzip is sent to who asks for gzip and nothing else, or
 * prefers it by weight, or refuses the plain form. The plain form also has a length and can be resumed.
 */
export function chooseCoding(header: string | undefined): ContentCoding | undefined {
  const offers = parseOffers(header ?? "");
  const weightOf = (coding: string) => offers.find((offer) => offer.coding === coding)?.weight;
  const anything = weightOf("*");
  const gzip = weightOf("gzip") ?? weightOf("x-gzip") ?? anything ?? 0;
  const named = weightOf("identity") ?? anything;
  if (named === 0) return gzip > 0 ? "gzip" : undefined;
  if (gzip === 0) return "identity";
  if (named !== undefined) return gzip > named ? "gzip" : "identity";
  return offers.every(({ coding, weight }) => weight === 0 || coding === "gzip" || coding === "x-gzip")
    ? "gzip"
    : "identity";
}

export function acceptsIdentity(header: string | undefined): boolean {
  const offers = parseOffers(header ?? "");
  const weight = (offers.find(({ coding }) => coding === "identity") ?? offers.find(({ coding }) => coding === "*"))
    ?.weight;
  return weight !== 0;
}
