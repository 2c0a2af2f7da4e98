import { expect, test } from "vitest";
import { parseTarget } from "./deliver.js";

test.each([
  ["docker://web/srv/app.tar", { kind: "docker", id: "web", directory: "/srv", fileName: "app.tar" }],
  ["docker://web/srv/", { kind: "docker", id: "web", directory: "/srv/", fileName: "image.tar" }],
  ["docker://web", { kind: "docker", id: "web", directory: "/", fileName: "image.tar" }],
  ["sandbox://iqo2/home/user/a/../b.tar", { kind: "sandbox", id: "iqo2", directory: "/home/user", fileName: "b.tar" }],
])("%s is understood", (text, target) => {
  expect(parseTarget(text)).toEqual(target);
});

test.each(["", "web:/srv", "docker:///srv", "http://web/srv", "docker://web/a\0b"])("%j is refused by name", (text) => {
  expect(() => parseTarget(text)).toThrow(/^TARGET: expected docker:\/\/CONTAINER\/PATH/);
});
