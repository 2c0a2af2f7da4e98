/** A sandbox that minds its own business all the while: if the hostile ones can be felt next door, it is here. */
import type { Engine, Sandbox } from "@holdfast/engine";
import { formatDuration } from "@holdfast/protocol";

const EVERY_MS = 100;

export class Neighbour {
  readonly #sandbox: Sandbox;
  readonly #done: Promise<void>;
  readonly #tookMs: number[] = [];
  #isMovingOut = false;
  #failures = 0;

  private constructor(sandbox: Sandbox) {
    this.#sandbox = sandbox;
    this.#done = this.#work();
  }

  static async moveIn(engine: Engine): Promise<Neighbour> {
    return new Neighbour(await engine.create({ whenOwnerDies: "end", hostname: "neighbour" }));
  }

  get failures(): number {
    return this.#failures;
  }

  /** Resolves to how it was, in words. */
  async moveOut(): Promise<string> {
    this.#isMovingOut = true;
    await this.#done;
    await this.#sandbox.kill("the end of the tour");
    const slowest = Math.max(0, ...this.#tookMs);
    const failed = this.#failures === 0 ? "none failed" : `${this.#failures} failed`;
    return `ran ${this.#tookMs.length} commands meanwhile, ${failed}, the slowest took ${formatDuration(slowest)}`;
  }

  async #work(): Promise<void> {
    while (!this.#isMovingOut) {
      const start = performance.now();
      try {
        const command = await this.#sandbox.start({ argv: ["true"] });
        const { exitCode } = await command.ended;
        if (exitCode !== 0) this.#failures += 1;
      } catch {
        // Counted, and the tour fails for it.
        this.#failures += 1;
      }
      this.#tookMs.push(performance.now() - start);
      await new Promise((resolve) => setTimeout(resolve, EVERY_MS));
    }
  }
}
