/**
 * How a module that declares an image is loaded, in the thread that Node keeps for it. `@holdfast/sdk` and its like are this
 * program's own, so that it needs no node_modules; TypeScript is made JavaScript on the way in.
 */
import { readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";

export interface HooksData {
  /** By what a module imports, the address of ours. */
  readonly ours: Readonly<Record<string, string>>;
  /** The address of the TypeScript compiler; undefined if there is none, or Node can do without. */
  readonly typescript: string | undefined;
}

interface Resolved {
  readonly url: string;
  readonly format?: string | null;
  readonly shortCircuit?: boolean;
}

interface Loaded {
  readonly format: string;
  readonly source: string;
  readonly shortCircuit: boolean;
}

type Resolve = (specifier: string, context: object) => Promise<Resolved>;

interface Compiler {
  readonly default: {
    readonly ModuleKind: { readonly ESNext: number };
    readonly ScriptTarget: { readonly ES2023: number };
    transpileModule(text: string, options: object): { readonly outputText: string };
  };
}

let data: HooksData = { ours: {}, typescript: undefined };

export function initialize(given: HooksData): void {
  data = given;
}

export async function resolve(
  specifier: string,
  context: { readonly parentURL?: string },
  next: Resolve,
): Promise<Resolved> {
  const url = Object.hasOwn(data.ours, specifier) ? data.ours[specifier] : undefined;
  if (url !== undefined) return { url, shortCircuit: true };
  try {
    return await next(specifier, context);
  } catch (error) {
    // TypeScript is written with the names that its files will have.
    const source = specifier.replace(/\.([mc]?)js$/, ".$1ts");
    if (!/^\.{0,2}\//.test(specifier) || source === specifier) throw error;
    return next(source, context).catch(() => {
      throw error;
    });
  }
}

export async function load(
  url: string,
  context: object,
  next: (url: string, context: object) => Promise<Loaded>,
): Promise<Loaded> {
  if (data.typescript === undefined || !/^file:.*\.m?ts$/.test(url)) return next(url, context);
  const { default: ts } = (await import(data.typescript)) as Compiler;
  const { outputText } = ts.transpileModule(await readFile(fileURLToPath(url), "utf8"), {
    fileName: fileURLToPath(url),
    compilerOptions: { module: ts.ModuleKind.ESNext, target: ts.ScriptTarget.ES2023, inlineSourceMap: true },
  });
  return { format: "module", source: outputText, shortCircuit: true };
}
