import { expect, test } from "vitest";
import { escapeHtml, renderRefusalPage } from "./refusal-page.js";

test("everything that is shown is escaped", () => {
  expect(escapeHtml(`<a href="x" b='y'>&`)).toBe("&lt;a href=&quot;x&quot; b=&#39;y&#39;&gt;&amp;");
  const page = renderRefusalPage({
    status: 502,
    message: "<script>1</script>",
    sandboxId: "<i>",
    ending: { message: "<b>ended</b>", cause: { kind: "killed", by: "<x>" } },
  });
  expect(page).not.toMatch(/<script|<i>|<b>|<x>/);
  expect(page).toContain("&lt;b&gt;ended&lt;/b&gt;");
});

test("a page says what to do", () => {
  const closed = renderRefusalPage({ status: 502, message: "m", port: 3000 });
  expect(closed).toContain("Nothing listens on port 3000");
  expect(closed).toContain("<title>Closed Port Error</title>");
  expect(renderRefusalPage({ status: 403, message: "m" })).toContain("e2b-traffic-access-token");
});
