import { expect } from "vitest";
import type { Cases } from "../cell.js";

/** On one shared address such a link names no sandbox: nobody can serve it there. */
const withNames = ({ way }: { way: string }) => way === "domain";

function changed(url: string, name: string, value: string | undefined): string {
  const parsed = new URL(url);
  if (value === undefined) parsed.searchParams.delete(name);
  else parsed.searchParams.set(name, value);
  return parsed.toString();
}

async function expectRefused(response: Response, message: string): Promise<void> {
  expect(response.status).toBe(401);
  expect(await response.json()).toEqual({ code: 401, message });
}

export const signedUrlCases: Cases = {
  "a signed link reads one file, with and without an end": {
    in: withNames,
    run: async ({ sandbox }) => {
      const path = "/tmp/signed größe & more.txt";
      await sandbox.files.write(path, "signed content");
      for (const options of [{}, { useSignatureExpiration: 60 }, { user: "root" }]) {
        const response = await fetch(await sandbox.downloadUrl(path, options));
        expect(response.status).toBe(200);
        expect(await response.text()).toBe("signed content");
      }
      const part = await fetch(await sandbox.downloadUrl(path), { headers: { Range: "bytes=7-10" } });
      expect(part.status).toBe(206);
      expect(await part.text()).toBe("cont");
    },
  },

  "a signed link writes one file, with and without an end": {
    in: withNames,
    run: async ({ sandbox }) => {
      const path = "/tmp/uploaded/by-link.txt";
      for (const [i, options] of [{}, { useSignatureExpiration: 60 }, { user: "root" }].entries()) {
        const form = new FormData();
        form.append("file", `content ${i}`);
        const response = await fetch(await sandbox.uploadUrl(path, options), { method: "POST", body: form });
        expect(response.status).toBe(200);
        expect(await response.json()).toEqual([{ path, name: "by-link.txt", type: "file" }]);
        expect(await sandbox.files.read(path)).toBe(`content ${i}`);
      }
      const raw = await fetch(await sandbox.uploadUrl(path), {
        method: "POST",
        body: "raw",
        headers: { "Content-Type": "application/octet-stream" },
      });
      expect(raw.status).toBe(200);
      expect(await sandbox.files.read(path)).toBe("raw");
      const nameless = new FormData();
      nameless.append("file", new Blob(["named by the form"]), "/tmp/uploaded/by-form.txt");
      expect((await fetch(await sandbox.uploadUrl(), { method: "POST", body: nameless })).status).toBe(200);
      expect(await sandbox.files.read("/tmp/uploaded/by-form.txt")).toBe("named by the form");
    },
  },

  "a link opens nothing else": {
    in: withNames,
    run: async ({ sandbox }) => {
      await sandbox.files.write("/tmp/one", "1");
      await sandbox.files.write("/tmp/two", "2");
      const link = await sandbox.downloadUrl("/tmp/one", { useSignatureExpiration: 60 });
      const later = String(Math.floor(Date.now() / 1000) + 99_999);
      await expectRefused(await fetch(changed(link, "path", "/tmp/two")), "invalid signature");
      await expectRefused(await fetch(changed(link, "username", "root")), "invalid signature");
      await expectRefused(await fetch(changed(link, "signature_expiration", later)), "invalid signature");
      await expectRefused(await fetch(changed(link, "signature", "v1_wrong")), "invalid signature");
      await expectRefused(await fetch(changed(link, "signature", undefined)), "missing signature query parameter");
      const form = new FormData();
      form.append("file", "written with a link that reads");
      await expectRefused(await fetch(link, { method: "POST", body: form }), "invalid signature");
      expect(await sandbox.files.read("/tmp/one")).toBe("1");
    },
  },

  "a link that is too old opens nothing": {
    in: withNames,
    run: async ({ sandbox }) => {
      await sandbox.files.write("/tmp/one", "1");
      const link = await sandbox.downloadUrl("/tmp/one", { useSignatureExpiration: -10 });
      await expectRefused(await fetch(link), "signature is already expired");
    },
  },

  "a link of one sandbox opens nothing in another": {
    in: withNames,
    run: async ({ sandbox, create }) => {
      await sandbox.files.write("/tmp/one", "1");
      const other = await create();
      await other.files.write("/tmp/one", "other's");
      const link = (await sandbox.downloadUrl("/tmp/one")).replace(sandbox.sandboxId, other.sandboxId);
      await expectRefused(await fetch(link), "invalid signature");
    },
  },
};
