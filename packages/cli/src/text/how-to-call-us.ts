/** The command's name as the reader of a line has to type it: from a checkout, and perhaps with sudo. */
export function howToCallUs(env: Readonly<Record<string, string | undefined>> = process.env): string {
  const fromCheckout = ["start", "tour"].includes(env.npm_lifecycle_event ?? "") ? "npx " : "";
  return `${(env.SUDO_USER ?? "") === "" ? "" : "sudo "}${fromCheckout}holdfast`;
}
