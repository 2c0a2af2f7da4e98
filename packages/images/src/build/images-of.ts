/** Images of one content. There may be several: owners have their own, and so have those who want other limits. */
import type { Digest } from "@holdfast/recipe";
import type { ImageRecord, ImageStore, Owner } from "../types.js";

export type Ordered = Pick<ImageRecord, "owner" | "limits">;

const LIMITS = ["memoryBytes", "cpuMillis", "diskBytes"] as const;

/** Those that the owner may use; their own come first, then the newest. */
export function imagesOf(
  store: Pick<ImageStore, "list">,
  { digest, owner }: { readonly digest: Digest; readonly owner: Owner },
): ImageRecord[] {
  return store
    .list({ owner })
    .filter((record) => record.digest === digest)
    .sort((one, other) => Number(other.owner === owner) - Number(one.owner === owner));
}

export function hasLimits(record: Pick<ImageRecord, "limits">, limits: ImageRecord["limits"]): boolean {
  return LIMITS.every((name) => record.limits[name] === limits[name]);
}

/** Whether it is the very one that such an order leads to. */
export function isAsOrdered(record: Ordered, order: Ordered): boolean {
  return record.owner === order.owner && hasLimits(record, order.limits);
}
