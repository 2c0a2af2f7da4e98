/** One sandbox's part of the host's budget: what it may take while it runs, what it holds while it stands still. */
import type { SandboxId, SandboxLimits } from "@holdfast/protocol";
import type { SandboxCgroup } from "../cgroups/index.js";
import type { SandboxSpec } from "../engine.js";
import { type Amounts, amountsOf } from "../governor/amounts.js";
import type { AdmissionRequest, Governor } from "../governor/governor.js";
import type { Admission } from "../governor/types.js";
import type { HostParts } from "./host-parts.js";

/** The lane of those that nobody named one for. */
const COMMON_LANE = "";

export function admissionRequest(
  host: Pick<HostParts, "records">,
  id: SandboxId,
  { limits, admission }: { readonly limits: SandboxLimits; readonly admission?: Admission | undefined },
): AdmissionRequest {
  return {
    id,
    kind: admission?.kind ?? "sandbox",
    lane: admission?.lane ?? COMMON_LANE,
    amounts: amountsOf(limits),
    record: host.records.pathOf(id),
  };
}

export class BudgetShare {
  readonly #governor: Governor;
  readonly #request: AdmissionRequest;
  readonly #cgroup: SandboxCgroup;

  constructor(
    host: Pick<HostParts, "records" | "governor">,
    id: SandboxId,
    parts: {
      readonly spec: SandboxSpec;
      readonly limits: SandboxLimits;
      readonly cgroup: SandboxCgroup;
    },
  ) {
    this.#governor = host.governor;
    this.#cgroup = parts.cgroup;
    this.#request = admissionRequest(host, id, parts);
  }

  /** For one that another process had: it is there already, so there is no question of room. */
  adopt(isFrozen: boolean): void {
    const amounts = isFrozen ? this.#heldOf(this.#request.amounts) : this.#request.amounts;
    this.#governor.adopt({ ...this.#request, amounts });
  }

  async growTo(limits: SandboxLimits, admission: Admission = {}): Promise<void> {
    await this.#governor.grow({ ...this.#request, amounts: amountsOf(limits) }, admission);
  }

  shrinkTo(limits: SandboxLimits): void {
    this.#governor.shrink(this.#request.id, amountsOf(limits));
  }

  /** Standing still, it takes no more than it has. */
  shrinkToHeld(limits: SandboxLimits): void {
    this.#governor.shrink(this.#request.id, this.#heldOf(amountsOf(limits)));
  }

  #heldOf(most: Amounts): Amounts {
    return {
      memoryBytes: Math.min(most.memoryBytes, this.#cgroup.readHeldBytes()),
      pids: Math.min(most.pids, this.#cgroup.readSandbox().pids),
      diskBytes: most.diskBytes,
    };
  }
}
