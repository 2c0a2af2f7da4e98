/** What is in force at a line of a stage: variables, arguments and the work directory, as far as the file itself says. */
import { cleanPath } from "../paths.js";
import { type Lookup, UNKNOWN } from "../variables.js";

export class Scope {
  /** UNKNOWN: set by this file, to something that has the base's variables in it. */
  readonly #env = new Map<string, string | typeof UNKNOWN>();
  readonly #args = new Map<string, string | undefined>();
  #workdir: string | undefined;

  /** What a stage that starts from another one goes on with. */
  static after(parent: Scope | undefined): Scope {
    const scope = new Scope();
    if (parent === undefined) return scope;
    for (const [name, value] of parent.#env) scope.#env.set(name, value);
    for (const [name, value] of parent.#args) scope.#args.set(name, value);
    scope.#workdir = parent.#workdir;
    return scope;
  }

  /** ENV wins over ARG. What neither has set may still be the base's. */
  readonly lookup: Lookup = (name) => {
    if (this.#env.has(name)) return this.#env.get(name);
    return this.#args.has(name) ? this.#args.get(name) : UNKNOWN;
  };

  setEnv(name: string, value: string | typeof UNKNOWN): void {
    this.#env.set(name, value);
  }

  setArg(name: string, value: string | undefined): void {
    this.#args.set(name, value);
  }

  /** What a RUN sees of the ARGs. */
  runEnvironment(): Record<string, string> | undefined {
    const visible = [...this.#args].filter(([name, value]) => value !== undefined && !this.#env.has(name));
    return visible.length === 0 ? undefined : (Object.fromEntries(visible) as Record<string, string>);
  }

  setWorkdir(path: string): void {
    this.#workdir = path.startsWith("/") ? path : undefined;
  }

  /**
   * From the work directory if this file has set it; else as it is, and a path that leads out of an unknown directory is
   * refused later. A slash at the end stays: it says that a directory is meant.
   */
  fromWorkdir(path: string): string {
    if (path.startsWith("/") || this.#workdir === undefined) return path;
    const { names, isDirectory } = cleanPath(`${this.#workdir}/${path}`);
    return `/${names.join("/")}${isDirectory && names.length > 0 ? "/" : ""}`;
  }
}
