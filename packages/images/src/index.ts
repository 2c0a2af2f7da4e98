export { type BaseProgress, ensureBase, findBase } from "./base/build-base.js";
export { type BaseOptions, DEFAULT_MIRROR, DEFAULT_SECURITY_MIRROR } from "./base/resolve-base.js";
export { isBaseImage } from "./build/apply-step.js";
export type { BaseResolver, ImagesContext } from "./context.js";
export {
  type DeliverOptions,
  deliverImage,
  deliverToContainer,
  deliverToSandbox,
  wrapAsTar,
} from "./deliver/deliver-image.js";
export type { OnProgress, Progress } from "./layers/progress.js";
export { type ExportOptions, type ExportReport, exportImage } from "./oci/export-image.js";
export { type ImportOptions, importImage } from "./oci/import-image.js";
export { type Images, type OpenImagesOptions, openImages } from "./open-images.js";
export type { AuthFor, RegistryAuth } from "./registry/credentials.js";
export { type PullOptions, pullImage } from "./registry/pull.js";
export { type PushOptions, type PushReport, pushImage } from "./registry/push.js";
export { parseReference } from "./registry/reference.js";
export { imageInfo } from "./runtime/image-info.js";
export { namesAskedFor } from "./runtime/names-asked-for.js";
export { type ImageSandboxRequest, planSandbox } from "./runtime/plan-sandbox.js";
export { requireForOperator } from "./runtime/require-for-operator.js";
export { type StartedCommand, type StartImageOptions, startImage } from "./runtime/start-image.js";
export {
  type ForkPoint,
  hostArchitecture,
  prepareFork,
  type TakenSnapshot,
  takeSnapshot,
} from "./snapshots/snapshot.js";
export { createBuildId, createImageId } from "./store/ids.js";
export { formatImageName, type ImageReference, parseImageReference } from "./store/reference.js";
export * from "./types.js";
