import { HoldfastError } from "@holdfast/protocol";
import { describe, expect, it } from "vitest";
import { parseMetadataFilter } from "./metadata-filter.js";

/** As the SDKs do it, up to the query parameter itself, which the query parser takes off. */
function encodeLikeTheSdk(metadata: Record<string, string>): string {
  const form = new URLSearchParams();
  for (const [key, value] of Object.entries(metadata)) form.append(encodeURIComponent(key), encodeURIComponent(value));
  return form.toString();
}

describe("parseMetadataFilter", () => {
  it("takes off all three layers of the encoding", () => {
    const query = "k%2525201%3Dv%2525262";
    expect(parseMetadataFilter(decodeURIComponent(query))).toEqual({ "k 1": "v&2" });
  });

  it("gives back what the SDK was given", () => {
    const metadata = { "a=b": "c&d", "100%": "+1 2", ü: "日本", empty: "", "%20": "%2520", __proto__x: "y" };
    expect(parseMetadataFilter(encodeLikeTheSdk(metadata))).toEqual(metadata);
  });

  it("takes pairs that a person wrote", () => {
    expect(parseMetadataFilter("user=abc&app=prod")).toEqual({ user: "abc", app: "prod" });
  });

  it("keeps a key named like the prototype as a key", () => {
    expect(Object.keys(parseMetadataFilter("__proto__=x"))).toEqual(["__proto__"]);
  });

  it.each(["%zz=1", "a=%25ff", "=1", "a=1&a=2"])("refuses %s by name", (form) => {
    expect(() => parseMetadataFilter(form)).toThrow(HoldfastError);
    expect(() => parseMetadataFilter(form)).toThrow(/^metadata: /);
  });
});
