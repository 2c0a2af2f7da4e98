/** Counts what becomes of builds, whichever of the routes asked for them. */
import type { Build, Builder } from "@holdfast/images";
import { HoldfastError } from "@holdfast/protocol";
import type { Metrics } from "./metrics.js";

export function countBuilds(builder: Builder, metrics: Pick<Metrics, "buildBegan" | "buildEnded">): Builder {
  return {
    async start(request): Promise<Build> {
      const build = await builder.start(request);
      metrics.buildBegan();
      build.image.then(
        () => metrics.buildEnded(build.info().cached ? "cached" : "ready"),
        (error: unknown) => metrics.buildEnded(HoldfastError.from(error).code === "canceled" ? "canceled" : "failed"),
      );
      return build;
    },
    get: (id) => builder.get(id),
    list: (options) => builder.list(options),
    recover: () => builder.recover(),
    close: () => builder.close(),
  };
}
