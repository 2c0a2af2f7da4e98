import { defineConfig, type TestProjectInlineConfiguration } from "vitest/config";
import { BaseSequencer, type TestSpecification } from "vitest/node";

/**
 * Packages are tested from source: `holdfast-source` is the private export condition that names it. The others are
 * Vite's defaults for code that runs in Node, which this list replaces.
 */
const conditions = ["holdfast-source", "module", "node", "development|production"];

/** Pure tests: no kernel, no network, no waiting. They share the cores. */
function pureProject(name: string, include: string): TestProjectInlineConfiguration {
  return { extends: true, test: { name, include: [include], sequence: { groupOrder: 0 } } };
}

/**
 * Tests on the real kernel. They measure budgets, count leaked processes and mounts, and this may be a host of two
 * cores: one file at a time, one project after the other. `npm test` has two such rows, in namespaces of their own.
 */
function kernelProject(name: string, groupOrder: number): TestProjectInlineConfiguration {
  return {
    extends: true,
    test: {
      name,
      include: [`tests/${name}/**/*.test.ts`],
      pool: "forks",
      fileParallelism: false,
      testTimeout: 60_000,
      hookTimeout: 60_000,
      // What comes about by itself may take its time on a busy host; one second, the default, is sometimes too little.
      expect: { poll: { timeout: 10_000 } },
      sequence: { groupOrder },
    },
  };
}

/** Who makes the base image comes first: its test makes it in any case, and the others find it then. */
class BaseFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const sorted = await super.sort(files);
    const isFirst = ({ moduleId }: TestSpecification) => moduleId.endsWith("/tests/images/base.test.ts");
    return [...sorted.filter(isFirst), ...sorted.filter((file) => !isFirst(file))];
  }
}

export default defineConfig({
  resolve: { conditions },
  ssr: { resolve: { conditions } },
  test: {
    passWithNoTests: true,
    sequence: { sequencer: BaseFirst },
    projects: [
      pureProject("unit", "packages/*/src/**/*.test.ts"),
      pureProject("house", "tests/house/**/*.test.ts"),
      kernelProject("guest", 1),
      kernelProject("engine", 2),
      kernelProject("security", 3),
      kernelProject("images", 4),
      kernelProject("server", 5),
      kernelProject("e2e", 6),
      kernelProject("contract", 7),
    ],
  },
});
