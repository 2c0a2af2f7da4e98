/** Who a client says it is to the registry that its template's image comes from. */
import { type AuthFor, parseReference, type RegistryAuth } from "@holdfast/images";
import { HoldfastError, invalidArgument } from "@holdfast/protocol";
import { authsByRegistry } from "../registries/registry-access.js";
import type { BuildStart } from "./template-recipe.js";

/** What Google's registries take a service account's key as. */
const GOOGLE_USERNAME = "_json_key";

type Given = NonNullable<BuildStart["fromImageRegistry"]>;

export function authOfTemplate({ fromImage, fromImageRegistry }: BuildStart): AuthFor | undefined {
  if (fromImageRegistry === null || fromImageRegistry === undefined) return undefined;
  if (fromImage === null || fromImage === undefined || fromImage === "") {
    throw invalidArgument("fromImageRegistry", fromImageRegistry.type, "credentials only beside fromImage");
  }
  const { registry } = parseReference(fromImage, "fromImage");
  return authsByRegistry({ [registry]: authFrom(fromImageRegistry) });
}

function authFrom(given: Given): RegistryAuth {
  switch (given.type) {
    case "registry":
      return { kind: "password", username: given.username, password: given.password };
    case "gcp":
      return { kind: "password", username: GOOGLE_USERNAME, password: onOneLine(given.serviceAccountJson) };
    case "aws":
      throw new HoldfastError("not_implemented", "fromImageRegistry: this server does not ask AWS for passwords", {
        hint: "Give it one: fromImage(image, { username: 'AWS', password }), with what `aws ecr get-login-password` prints.",
        details: { field: "fromImageRegistry" },
      });
  }
}

/** As a header takes it. What it says is not repeated in an error: it is a secret. */
function onOneLine(json: string): string {
  try {
    return JSON.stringify(JSON.parse(json));
  } catch {
    throw new HoldfastError("invalid_argument", "fromImageRegistry.serviceAccountJson: expected JSON", {
      details: { field: "fromImageRegistry.serviceAccountJson" },
    });
  }
}
