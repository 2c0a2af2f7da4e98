/** What an image comes down to on this engine: layers for the overlay at /, and what else is mounted beside it. */

export interface ImageMount {
  /** Layers of a read-only overlay, uppermost first; one layer alone is bound as it is. */
  readonly layers: readonly string[];
  /** A directory right below /. */
  readonly target: string;
}

export interface PreparedImage {
  /** Read-only directories, uppermost first; the sandbox's own writes lie above them. */
  readonly layers: readonly string[];
  readonly mounts: readonly ImageMount[];
}
